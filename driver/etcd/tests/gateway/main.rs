//! The client against a gateway whose answers are scripted.

mod calls;
mod scripted;
mod watches;

//! Connections between processes of jobs, and between them and strangers.

mod blocking;
mod handshake;
mod opening;
mod pair;
mod strangers;
mod token;

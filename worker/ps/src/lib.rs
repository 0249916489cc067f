//! A parameter server.
mod core;

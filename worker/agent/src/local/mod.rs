//! The Unix socket: how workers of this host reach their agent.

mod connection;
mod door;

pub(crate) use connection::{Connection, SharedFd};
pub(crate) use door::{Knock, open};

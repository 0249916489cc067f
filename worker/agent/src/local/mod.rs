//! The Unix socket: how workers of this host reach their agent.

mod acceptor;
mod connection;

pub(crate) use acceptor::{AttachRequest, Purpose, open};
pub(crate) use connection::{Connection, SharedFd};

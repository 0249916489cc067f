//! Connections: bytes in and out. Nothing here knows what a frame means.

mod connection;
mod outgoing;
mod receiver;
mod sender;

pub(crate) use connection::{Connection, Pace};
pub(crate) use outgoing::Outgoing;
pub(crate) use receiver::{Payload, ReceiveError, Receiver, Scratch};
pub(crate) use sender::SendThread;

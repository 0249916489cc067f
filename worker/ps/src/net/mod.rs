//! Connections: bytes in and out. Nothing here knows what a frame means.

mod connection;
mod listener;
mod outgoing;
mod receiver;
mod sender;
mod shared;
mod stream;
mod turn;
mod wake;

pub(crate) use connection::{Connection, Pace};
pub(crate) use listener::{Listener, Sockets, connect_once};
pub(crate) use outgoing::Outgoing;
pub(crate) use receiver::{Payload, ReceiveError, Receiver, Scratch};
pub(crate) use sender::SendThread;
pub(crate) use shared::{End, MAX_SHARED, SharedMemory};
pub(crate) use stream::Stream;
pub(crate) use turn::{Reading, Turn};
pub(crate) use wake::{Wake, poll_readable};

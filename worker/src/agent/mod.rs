//! The agent of this host, from the view of a worker.
//!
//! A thread ([`thread`]) reads the agent's messages and sends heartbeats. Messages wait in an
//! [`Inbox`] for the training thread. An abort does not wait there: the thread ends collectives,
//! holds and transfers at once.

mod attach;
mod connection;
mod inbox;
mod request;
mod thread;
mod welcome;

pub(crate) use attach::SOCKET;
pub(crate) use connection::{AgentConnection, Transport};
pub(crate) use inbox::{Inbox, NextJoin, StartedRound};
pub(crate) use request::{Answers, request};

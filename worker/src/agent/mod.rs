//! The agent of this host, as a worker knows it.
//!
//! A thread ([`thread`]) reads what the agent says and gives signs of life; what it hears waits in an
//! [`Inbox`] for the training thread. An abort does not wait there: the thread ends collectives, holds and
//! transfers at once.

mod attach;
mod inbox;
mod link;
mod request;
mod thread;

pub(crate) use attach::SOCKET;
pub(crate) use inbox::{Inbox, NextJoin, Started};
pub(crate) use link::{Line, Link};
pub(crate) use request::request;

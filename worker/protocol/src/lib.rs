//! The messages between driver, agent and worker: identifiers, frames and the handshake.
//!
//! This crate does no I/O, so that the simulation, the fuzz targets and every shell share one definition. A message is
//! a length-delimited frame with a JSON body ([`frame`]). A connection between hosts starts with mutual TLS, and
//! then with a message each way ([`opening`]). Then driver and agent exchange the messages of [`control`].
//! An agent and its workers exchange those of [`local`]. [`store`] has its own connections. The nodes of a dynamic rendezvous,
//! which has neither driver nor agents, exchange those of [`rendezvous`] with their server.

#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
pub mod any_stream;
pub mod auth;
mod blob;
pub mod control;
pub mod frame;
mod ids;
pub mod local;
mod millis;
pub mod opening;
pub mod rendezvous;
pub mod store;
pub mod topology;

pub use blob::Blob;
pub use control::{AgentCommand, AgentReport, FromAgent, Notice, NoticeKind, ToAgent};
pub use ids::{
    Boundary, CommitId, CommitKey, DriverEpoch, Generation, HostId, LocalRank, Process, Rank,
    Round, Shard,
};
pub use local::{FromWorker, ToWorker};

//! What driver, agent and worker say to each other: names, messages, frames and the handshake.
//!
//! Nothing here does I/O, so that the simulation, the fuzz targets and every shell share one truth.
//! A message is a length-delimited frame with a JSON body ([`frame`]); a connection between hosts opens
//! with a handshake that authenticates both sides by the job's secret ([`auth`]). Driver and agent then
//! speak [`control`]'s messages, an agent and its workers [`local`]'s; [`store`] has connections of its own.

#[cfg(feature = "any-stream")]
pub mod any_stream;
pub mod auth;
pub mod control;
pub mod frame;
mod ids;
pub mod local;
mod millis;
pub mod store;
pub mod topology;

pub use control::{AgentCommand, AgentReport, FromAgent, Notice, NoticeKind, ToAgent};
pub use ids::{
    Boundary, CommitId, DriverEpoch, Generation, HostId, LocalRank, Process, Rank, Round,
};
pub use local::{FromWorker, ToWorker};

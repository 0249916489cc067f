//! What driver, agent and worker say to each other: names, messages, frames and the handshake.
//!
//! Nothing here does I/O. A message is a length-delimited frame with a JSON body (see [`frame`]);
//! the handshake that authenticates both sides by the job's secret is [`auth`].

mod ids;

pub use ids::{Boundary, CommitId, DriverEpoch, Generation, HostId, LocalRank, Process, Rank, Round};

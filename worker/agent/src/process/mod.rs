//! Worker processes: their environment, their start, and what the agent holds of each while it lives.

mod environment;
mod hosted;
mod starter;

pub(crate) use environment::{AGENT_SOCKET, Surroundings, variables};
pub(crate) use hosted::{Hosted, Life, SharedRank};
pub(crate) use starter::{Started, Starter, ToStart};

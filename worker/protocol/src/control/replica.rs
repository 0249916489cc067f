//! Replicas of commits on hosts without a member.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Keeper;
#[cfg(doc)]
use super::{AgentCommand, Setup};
use crate::millis;

/// How agents copy commits for replicas. A field of [`Setup`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Replication {
    /// The time from the end of one copy to the start of the next, unless the copy took longer.
    #[serde(with = "millis")]
    pub interval: Duration,
    /// The bytes that an agent receives in a second. None for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
}

/// The process whose newest commit an agent keeps a replica of. A field of [`AgentCommand::Replicate`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaSource {
    /// Rank 0 of the round. It may be dead.
    pub keeper: Keeper,
    /// The number of workers and of replicas that share the memory for commits.
    pub holders: u32,
    /// The host of the source will go away, so the next copy begins at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_once: bool,
}

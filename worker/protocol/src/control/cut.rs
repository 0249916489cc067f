//! Replicas of a state that is divided among workers.
//!
//! All shards must be copied of the same commit, else no commit is complete. So the driver names this commit, the *cut*,
//! before any worker has sealed it:
//!
//! ```text
//!  driver                                     agents
//!    | Cut{keep, next}                           |  workers keep `next` once they have sealed it
//!    |------------------------------------------>|
//!    |                       CutHeld{next, held} |  all members here have passed it
//!    |<------------------------------------------|
//!    | Cut{keep, next, copies}                   |  to the hosts that copy shards of others
//!    |------------------------------------------>|
//!    |                         Replicated{next}  |
//!    |<------------------------------------------|
//!    | Cut{keep: next, next: a later one}        |  copies of older cuts are freed
//!    |------------------------------------------>|
//! ```

use serde::{Deserialize, Serialize};

use super::Keeper;
#[cfg(doc)]
use super::{AgentReport, Register, Setup};
use crate::{CommitId, Process, Round, Shard};

/// What the hosts of a divided state keep for each other. Only sent to an agent that supports it ([`Register::cuts`]).
/// Shards are copied only if [`Setup::replication`] is set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cut {
    /// Grows with each of these commands. An older one is a repeat.
    pub number: u64,
    /// The last round that was planned. From the answer to a later plan on, no copy is given up.
    pub planned: Round,
    /// The base of the round that trains, as long as it may be needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<CommitId>,
    /// The newest cut of which all copies are complete. Its shards stay, those of workers and copies. None if there is none
    /// in the whole job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<CommitId>,
    /// The cut that is copied next. The agent reports [`AgentReport::CutHeld`] once all members here have sealed it or a newer
    /// commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<CommitId>,
    /// Shards of `next` on other hosts, to be copied to this one. The agent reports [`AgentReport::Replicated`] once it has
    /// all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<ShardCopy>,
}

/// A shard on another host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardCopy {
    /// The shard.
    pub shard: Shard,
    /// The process whose memory has it.
    pub keeper: Keeper,
}

/// A shard in the memory of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CutShard {
    /// The member.
    pub process: Process,
    /// The shard.
    pub shard: Shard,
}

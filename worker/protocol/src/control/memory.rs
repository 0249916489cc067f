//! Requests for commits that an agent keeps.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{CommitKey, Process};

/// A request on the memory connection. The answer is [`MemoryAnswer`] and then `length` raw bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryRequest {
    /// The process whose memory has the commit.
    pub process: Process,
    /// The commit to read. The answer is [`MemoryAnswer::Missing`] unless that memory holds it complete.
    #[serde(flatten)]
    pub key: CommitKey,
    /// Reads the newest commit of this shard instead, if it is newer than the one named. An older agent ignores this, and
    /// does not find the commit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newer: bool,
    /// Reads only these parts, by offset and length in bytes, one after the other. Empty: the whole commit. An older agent
    /// ignores this, and sends the whole commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<(u64, u64)>,
    /// The copy is in no hurry: it takes no processor from training. An older agent ignores this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Where the agent that is asked gets the parts: it asks the first of these agents, which gets them from the next one in
    /// the same way. The last one has the commit. Empty: the agent that is asked has it. An older agent ignores this, and
    /// does not find the commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<Via>,
    /// The number of requests for these parts that the agent gets. It keeps the parts until it has answered all of them. Only
    /// with `via`.
    #[serde(default, skip_serializing_if = "is_none")]
    pub requests: u32,
}

/// An agent through which a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Via {
    /// The address at which it serves commits.
    pub agent: SocketAddr,
    /// [`MemoryRequest::requests`] there.
    #[serde(default, skip_serializing_if = "is_none")]
    pub requests: u32,
}

/// Answer to a [`MemoryRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryAnswer {
    /// The commit exists and its bytes follow.
    Found {
        /// The number of bytes.
        length: u64,
        /// The xxh3 digest of the bytes, which are checked because they leave the host.
        digest: u64,
        /// The commit that is sent, in the answer to a request for a newer one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<CommitKey>,
        /// The version of the format of the bytes.
        #[serde(default, skip_serializing_if = "is_zero")]
        state_version: u64,
    },
    /// The commit does not exist, or no longer.
    Missing,
    /// There is a newer commit, and its worker wrote over it while it was read. Only in the answer to a request for a newer
    /// one.
    Overwritten,
}

fn is_none(requests: &u32) -> bool {
    *requests == 0
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

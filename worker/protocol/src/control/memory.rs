//! Requests for commits that an agent keeps.

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
    },
    /// The commit does not exist, or no longer.
    Missing,
}

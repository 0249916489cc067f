//! Commits in a durable store: a directory, or a bucket.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{CommitId, millis};

/// Where agents write commits durably, and how often. A field of [`Setup`](super::Setup).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Durable {
    /// An absolute path, or the URL of a bucket and a prefix.
    pub place: String,
    /// The time from the end of one write to the start of the next.
    #[serde(with = "millis")]
    pub interval: Duration,
}

/// A complete commit in a durable store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct StoredCommit {
    /// When it was written, in milliseconds since 1970 by the clock of its writer. It orders commits of different runs.
    pub written_at: u64,
    /// The run that made it.
    pub run_id: String,
    /// Its id in that run.
    pub commit: CommitId,
}

/// Which run a new job continues from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeFrom {
    /// The run that wrote last.
    Latest,
    /// The run of this id.
    Run(String),
}

//! Why a commit is not written to a durable store, or not read from it.

use std::io;

use elasticrun_protocol::CommitId;
use elasticrun_shm::commit;

use super::manifest::ManifestError;

/// An error of a durable store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] elasticrun_durable::Error),
    /// A manifest is refused, so its commit is not used.
    #[error("the durable commit at {path} is not used: {source}")]
    Manifest {
        /// The path or the key of the manifest.
        path: String,
        /// The cause.
        source: ManifestError,
    },
    /// A commit was removed after it was found.
    #[error("the durable commit {path} is gone")]
    Missing {
        /// The path or the key of the commit.
        path: String,
    },
    /// A file is not as it was written.
    #[error("the durable commit at {path} is damaged: its bytes are not those that were written")]
    Damaged {
        /// The path or the key of the file.
        path: String,
    },
    /// The commit is of a state that is divided among workers.
    #[error("the durable commit {path} has {count} shards, and this release loads one")]
    Sharded {
        /// The path or the key of the commit.
        path: String,
        /// The number of shards.
        count: usize,
    },
    /// The commit memory failed, most likely for lack of memory.
    #[error("a durable commit cannot be kept in memory: {0}")]
    Memory(#[from] commit::Error),
    /// A worker has overwritten the commit while it was copied.
    #[error(
        "commit {id} was overwritten while it was copied; a larger --commit-memory gives each worker a third buffer"
    )]
    Overwritten {
        /// The commit.
        id: CommitId,
    },
    /// The process has no commit any more.
    #[error("the memory of the worker has no commit to copy")]
    Gone,
    /// What was written cannot be read.
    #[error("the durable commit {path} was written and is not there")]
    Unreadable {
        /// The path or the key of the commit.
        path: String,
    },
}

impl Error {
    /// Wraps an error of the system.
    pub(super) fn store(what: &'static str, path: &str) -> impl FnOnce(io::Error) -> Self + use<> {
        let wrap = elasticrun_durable::Error::store(what, path);
        move |source| Self::Store(wrap(source))
    }
}

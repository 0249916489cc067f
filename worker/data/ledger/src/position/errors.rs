//! Errors of a position.

use crate::{LedgerError, Malformed, MidEpoch, TooFewStripes};

/// Why the workers of a round cannot continue together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Disagreement {
    /// A worker has another ledger, epoch or data set.
    #[error(
        "rank {rank} is elsewhere in the data: do all workers read the same files, and is the data set part of the state?"
    )]
    Diverged {
        /// The rank of the worker.
        rank: usize,
    },
    /// A message of a worker does not decode.
    #[error("rank {rank}: {why}")]
    Malformed {
        /// The rank of the worker.
        rank: usize,
        /// What is wrong.
        why: Malformed,
    },
    /// A worker reports rows that it did not have.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// No worker would read the rows.
    #[error("no worker of this round has a weight: one at least must be more than 0")]
    NoWeight,
    /// In order "deterministic" all workers have the same global batch.
    #[error(
        "rank {rank} has a global batch of {other} rows, rank 0 one of {batch}: all workers pass the same"
    )]
    Batch {
        /// The rank of the worker.
        rank: usize,
        /// Its rows a step.
        other: u32,
        /// The rows a step of rank 0.
        batch: u32,
    },
    /// All workers end the epoch at the same step.
    #[error("rank {rank} and this worker differ in drop_last: all workers pass the same")]
    DropLast {
        /// The rank of the other worker.
        rank: usize,
    },
    /// In order "deterministic" there is at least one stripe for each worker.
    #[error(transparent)]
    TooFewStripes(#[from] TooFewStripes),
    /// Two processes claim to be the same worker.
    #[error("ranks {0} and {1} say that they are the same worker")]
    DuplicateWorker(usize, usize),
}

/// Why a commit cannot be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// The bytes do not decode, or belong to another data set.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The commit has another order.
    #[error(transparent)]
    MidEpoch(#[from] MidEpoch),
}

//! Why a position cannot go on.

use crate::{Malformed, Midst, Refused, TooFew};

/// Why workers cannot go on together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Disagreement {
    /// Another ledger, epoch or data set.
    #[error(
        "rank {rank} is elsewhere in the data: do all workers read the same files, and is the data set part of the state?"
    )]
    Elsewhere {
        /// Who.
        rank: usize,
    },
    /// Not what a worker says.
    #[error("rank {rank}: {why}")]
    Malformed {
        /// Who.
        rank: usize,
        /// What is wrong.
        why: Malformed,
    },
    /// Rows that are not its own.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Nobody would read the rows.
    #[error("no worker of this round has a weight: one at least must be more than 0")]
    NoWeight,
    /// Order "deterministic" has one batch for all.
    #[error(
        "rank {rank} has a global batch of {other} rows, rank 0 one of {batch}: all workers pass the same"
    )]
    Batch {
        /// Who.
        rank: usize,
        /// Its rows a step.
        other: u32,
        /// Those of rank 0.
        batch: u32,
    },
    /// Order "deterministic" has a stripe for each worker at least.
    #[error(transparent)]
    TooFew(#[from] TooFew),
    /// Two processes that say they are the same one.
    #[error("ranks {0} and {1} say that they are the same worker")]
    Twins(usize, usize),
}

/// Why a commit is none for this position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// It is nothing, or of something else.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is of another order.
    #[error(transparent)]
    Midst(#[from] Midst),
}

//! Errors of elastic data.

use elasticrun_ledger::{Disagreement, LedgerError, RestoreError};

/// Why a step or a round cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data cannot be read.
    #[error(transparent)]
    Read(#[from] crate::Error),
    /// The workers of the round disagree.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
    /// The ledger rejects the processed rows: an internal error.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The commit belongs to another data set, or has another order in the middle of an epoch.
    #[error("the state of the data set cannot be restored: {0}")]
    Restore(#[from] RestoreError),
    /// The audit log cannot be written.
    #[error("cannot write the audit")]
    Audit(#[source] std::io::Error),
    /// Rows were requested before the start of a round.
    #[error(
        "rows are read before the data set has entered a round: is it part of the state that is trained?"
    )]
    Outside,
    /// An option is set too late.
    #[error("drop_last is set before the first round: pass it to the data set")]
    Late,
}

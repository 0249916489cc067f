//! Why a data set cannot be read elastically.

use elasticrun_ledger::{Disagreement, Refused, Unfit};

/// Why a step or a round cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data cannot be read.
    #[error(transparent)]
    Read(#[from] crate::Error),
    /// Workers do not fit together.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
    /// What was processed is not what was to be: a mistake of ours.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A commit that is none of this data set, or of another order from the midst of an epoch.
    #[error("the state of the data set cannot be restored: {0}")]
    Unfit(#[from] Unfit),
    /// The audit.
    #[error("cannot write the audit")]
    Audit(#[source] std::io::Error),
    /// Rows before the start of a round.
    #[error(
        "rows are read before the data set has entered a round: is it part of the state that is trained?"
    )]
    Outside,
}

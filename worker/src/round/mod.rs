//! The start of a round: connecting to the members, and the same state in all of them.

mod connect;
mod fetch;
mod sync;

pub(crate) use connect::connect;
pub(crate) use sync::{reach_base, sync};

use elasticrun_collectives::Error as GroupError;

use crate::{Error, Interrupt, agent::Inbox};

/// What a failed collective means to the worker.
///
/// A worker that was told to stop hears that. Whatever says that another member is not there is an
/// interrupt, and which ones do not answer is told when this worker comes back; what a new round would not change (calls that do not match, no memory) is an error, unless the
/// round is over anyway.
pub(crate) fn judge(error: GroupError, inbox: &Inbox) -> Error {
    match error {
        GroupError::Unreachable {
            ref host_indices, ..
        } => {
            tracing::debug!(%error, "the round is over");
            inbox.cannot_reach(host_indices.iter().copied());
            inbox.ended().unwrap_or(Interrupt::WorkersFailed.into())
        }
        GroupError::Aborted { .. }
        | GroupError::PeerLost { .. }
        | GroupError::PeerLeft { .. }
        | GroupError::TimedOut { .. }
        | GroupError::Stale { .. } => {
            tracing::debug!(%error, "the round is over");
            inbox.ended().unwrap_or(Interrupt::WorkersFailed.into())
        }
        GroupError::Mismatch { .. } if inbox.is_over() => Interrupt::WorkersFailed.into(),
        error => Error::Collective(error),
    }
}

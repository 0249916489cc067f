//! The start of a round, as [`elasticrun_core::worker`] decides it: connects to the members and
//! brings all of them to the same state.

mod connect;
mod fetch;
mod holders;
mod relays;
mod shards;
mod sync;

pub(crate) use connect::connect;
pub use holders::ShardCopy;
pub use shards::{DividedBase, Route};
pub(crate) use shards::{fetch_shard, open_divided};
pub(crate) use sync::{fetch_base, sync};

use elasticrun_collectives::Error as GroupError;
use elasticrun_core::worker::{Failure, Over};

use crate::{Error, agent::Inbox};

/// Records the error of a failed collective of the training thread, which may end the round.
/// Returns the error to pass on.
pub(crate) fn record_error(inbox: &Inbox, error: GroupError) -> Error {
    let failure = to_failure(&error);
    let over = inbox.with_machine(|machine| machine.failed(failure));
    to_error(error, over)
}

/// Like [`record_error`], on any thread, without an effect on the round.
pub(crate) fn classify(inbox: &Inbox, error: GroupError) -> Error {
    let failure = to_failure(&error);
    let over = inbox.with_machine(|machine| machine.judge(failure));
    to_error(error, over)
}

/// Converts the error of a collective to the machine's failure.
fn to_failure(error: &GroupError) -> Failure {
    match error {
        GroupError::Unreachable { host_indices, .. } => Failure::Lost {
            hosts: host_indices.clone(),
        },
        GroupError::Aborted { .. }
        | GroupError::PeerLost { .. }
        | GroupError::PeerLeft { .. }
        | GroupError::TimedOut { .. }
        | GroupError::Stale { .. } => Failure::Lost { hosts: Vec::new() },
        GroupError::Mismatch { .. } => Failure::Mismatch,
        _ => Failure::Fatal,
    }
}

/// The error to pass on: the machine's verdict, else the failure itself.
fn to_error(error: GroupError, over: Option<Over>) -> Error {
    match over {
        Some(over) => {
            match &error {
                GroupError::PeerLeft { .. } => tracing::warn!(%error, "the round is over"),
                _ => tracing::debug!(%error, "the round is over"),
            }
            over.into()
        }
        None => Error::Collective(error),
    }
}

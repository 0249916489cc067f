//! The start of a round, as [`elasticrun_core::worker`] decides it: connecting to the members, and the same state in all
//! of them.

mod connect;
mod fetch;
mod sync;

pub(crate) use connect::connect;
pub(crate) use sync::{fetch_base, sync};

use elasticrun_collectives::Error as GroupError;
use elasticrun_core::worker::{Failure, Over};

use crate::{Error, agent::Inbox};

/// A collective of the training thread has failed: the error to hand on. The round may be over by it.
pub(crate) fn failed(inbox: &Inbox, error: GroupError) -> Error {
    let failure = failure_of(&error);
    let over = inbox.ask(|machine| machine.failed(failure));
    error_of(error, over)
}

/// As [`failed`], on any thread: nothing follows for the round.
pub(crate) fn judge(inbox: &Inbox, error: GroupError) -> Error {
    let failure = failure_of(&error);
    let over = inbox.ask(|machine| machine.judge(failure));
    error_of(error, over)
}

/// What a failed collective is to the machine.
fn failure_of(error: &GroupError) -> Failure {
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

/// The error to hand on: what the machine says of a failed collective, else the failure itself.
fn error_of(error: GroupError, over: Option<Over>) -> Error {
    match over {
        Some(over) => {
            tracing::debug!(%error, "the round is over");
            over.into()
        }
        None => Error::Collective(error),
    }
}

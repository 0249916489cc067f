//! The steps of an SDK from a connected round to the training function, in order.
//!
//! `run` in Rust, `elastic.run` in Python and the simulation carry out these steps and decide nothing themselves. So
//! this module alone decides when reset callbacks run, what they see, and whether the round begins with their changes.
//!
//! ```text
//!   after a failure              each survivor   each member
//!   FetchBase (rank 0), Restore    Reset           RequireBase, SyncOwn | Sync    Adapt    Train
//! ```
//!
//! A state that is divided among workers ([`Hooks::divided`]) is never sent by rank 0. Each member loads its shard of the
//! base, and seals it as commit 0 of the round. No step is done before all members have sealed theirs. So until then
//! the base is complete, and from then on commit 0 is:
//!
//! ```text
//!   each member    each survivor    each member
//!   LoadShards       Reset          SealFirst    Adapt    Train
//! ```

use super::{Departure, LiveState};
use crate::mutant::{Mutant, planted};

/// The parts of the start of a round that are the user's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hooks {
    /// Reset callbacks read the state of a survivor, and may change it.
    pub callbacks: bool,
    /// A restore of the state may do more than that.
    pub restore: bool,
    /// The user's code brings the state of rank 0 to all members, and keeps it: the commits of the agent are empty.
    pub sync: bool,
    /// The state is divided among the members of a replica group: each commits a shard.
    pub divided: bool,
}

/// A step from a connected round to the training function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupStep {
    /// Fetch the base of the round into the memory of this process. Only for rank 0.
    FetchBase,
    /// Restore the live state from the newest commit in the memory of this process; without a commit, as
    /// [`Restore`](Self::Restore).
    RestoreNewest,
    /// Call the user's code that restores the state.
    Restore,
    /// Call reset callbacks.
    Reset,
    /// All members: fail if rank 0 lacks the base.
    RequireBase,
    /// All members: call the user's code that brings the state of rank 0 to all.
    SyncOwn,
    /// All members: bring the state to the base of the round.
    Sync {
        /// The round begins with the changes that reset callbacks have made to the base.
        fresh: bool,
    },
    /// Make the state for this round, and fill it from the shards of the base, if the round has one.
    LoadShards,
    /// Seal the shard of this member as commit 0 of the round, then all members: wait until all have, and compare what must
    /// be alike.
    SealFirst,
    /// Adapt the state to the members of the round.
    Adapt,
    /// Call the training function, which may change the state.
    Train,
}

/// The steps of a member that left its last round as in `departure`; `None` in its first round. `other`: the base is not the
/// commit of its state. Rounds have begun without this member since, perhaps from an older commit.
pub(super) fn setup(
    hooks: Hooks,
    departure: Option<Departure>,
    is_root: bool,
    other: bool,
    live: &LiveState,
) -> Vec<SetupStep> {
    if hooks.divided {
        return divided_setup(departure.is_some());
    }
    let mut steps = Vec::new();
    let is_survivor = departure.is_some();
    let failed = departure.is_some_and(|departure| !departure.committed);
    // Nothing else reads the state before the sync, which restores it as well.
    let is_seen = hooks.callbacks || hooks.restore || hooks.sync;
    let outdated = is_survivor && is_root && other && !hooks.sync;
    if (failed || outdated) && is_seen && !planted(Mutant::CallbacksSeeTorn) {
        // The callbacks of rank 0 see the state with which the round begins, even if another process keeps it.
        if is_root && !hooks.sync && !planted(Mutant::CallbacksSeeOlder) {
            steps.push(SetupStep::FetchBase);
        }
        // A state that the user's code saved before any commit reached it is no progress.
        steps.push(match hooks.sync || live.was_synced() {
            true => SetupStep::Restore,
            false => SetupStep::RestoreNewest,
        });
    }
    if is_survivor {
        steps.push(SetupStep::Reset);
    }
    if hooks.sync {
        steps.extend([SetupStep::RequireBase, SetupStep::SyncOwn]);
    }
    let fresh = is_survivor && hooks.callbacks && !hooks.sync;
    let fresh = fresh && !planted(Mutant::CallbacksUncounted);
    steps.extend([
        SetupStep::Sync { fresh },
        SetupStep::Adapt,
        SetupStep::Train,
    ]);
    steps
}

fn divided_setup(is_survivor: bool) -> Vec<SetupStep> {
    let mut steps = vec![SetupStep::LoadShards];
    if is_survivor {
        steps.push(SetupStep::Reset);
    }
    steps.extend([SetupStep::SealFirst, SetupStep::Adapt, SetupStep::Train]);
    steps
}

//! What the live state of a worker was made of, and so whether a round may begin with it.
//!
//! The memory of a worker's commits is no witness: rank 0 of a round of newcomers fetches the base into its memory
//! before its state has taken it over. A round whose first sync is interrupted then leaves a process that holds
//! the base and still has the state that its constructor made. So the state itself is followed.
//!
//! # Invariants
//! - A state that was never synced, restored or committed continues no commit.
//! - A state continues at most one commit: the one that it was made of, or sealed as, last.

use elasticrun_protocol::CommitId;

use super::Commits;
use crate::mutant::{Mutant, planted};

/// The origin of the live state.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveState {
    /// The commit that it was made of, or sealed as, last.
    origin: Option<CommitId>,
    /// Whether it may differ from that by now.
    changed: bool,
    /// Whether a commit ever reached it.
    seen: bool,
}

impl LiveState {
    /// It equals a commit: it was restored from it, or sealed as it.
    pub fn became(&mut self, id: CommitId) {
        self.origin = Some(id);
        self.changed = false;
        self.seen = true;
    }

    /// It was made of a commit, and the user's code may change it at any time from then on.
    pub fn derived_from(&mut self, id: CommitId) {
        self.origin = Some(id);
        self.changed = true;
        self.seen = true;
    }

    /// Training may change it.
    pub fn changes(&mut self) {
        self.changed = true;
    }

    /// It is whole nowhere but in commits: a restore has failed, or its commit is no part of the history.
    pub fn lost(&mut self) {
        self.origin = None;
        self.changed = true;
    }

    /// Its commit may have been given up: then it is no part of the history.
    pub(super) fn check_kept(&mut self, commits: &impl Commits) {
        if self.origin.is_some_and(|origin| !commits.holds(origin)) {
            self.lost();
        }
    }

    /// The commit that it was made of, or sealed as, last; none if it is still what the process began with.
    pub fn origin(&self) -> Option<CommitId> {
        self.origin
    }

    /// Whether a commit ever reached it.
    pub fn was_synced(&self) -> bool {
        self.seen
    }

    /// Whether it is known to equal a commit.
    pub fn equals(&self, id: CommitId) -> bool {
        self.origin == Some(id) && !self.changed
    }

    /// Whether a round from `base` may begin with it, as reset callbacks have left it. Where there is no base, nothing
    /// was ever committed.
    pub fn continues(&self, base: Option<CommitId>) -> bool {
        base.is_none_or(|base| self.origin == Some(base)) || planted(Mutant::UnseenBase)
    }

    /// Whether a round from `base` would lose all steps with it: no commit of the job ever reached it.
    pub fn lacks(&self, base: Option<CommitId>) -> bool {
        !self.seen && base.is_some_and(|base| base.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::{DriverEpoch, Round};

    use super::*;

    fn id(round: u64, count: u64) -> CommitId {
        CommitId {
            epoch: DriverEpoch(1),
            round: Round(round),
            count,
        }
    }

    #[test]
    fn what_was_never_synced_continues_nothing() {
        let mut live = LiveState::default();
        assert!(live.continues(None));
        assert!(!live.continues(Some(id(1, 9))));
        assert!(live.lacks(Some(id(1, 9))));
        assert!(!live.lacks(Some(id(1, 0))), "no step led to it");
        live.changes();
        assert!(!live.continues(Some(id(1, 9))));
    }

    #[test]
    fn it_continues_the_commit_that_it_was_made_of_last() {
        let mut live = LiveState::default();
        live.became(id(1, 0));
        assert!(live.equals(id(1, 0)));
        live.changes();
        assert!(!live.equals(id(1, 0)) && live.continues(Some(id(1, 0))));
        live.derived_from(id(1, 2));
        assert!(!live.continues(Some(id(1, 0))) && live.continues(Some(id(1, 2))));
        assert!(!live.equals(id(1, 2)), "callbacks may have changed it");
        live.lost();
        assert!(!live.continues(Some(id(1, 2))) && !live.lacks(Some(id(1, 2))));
    }
}

//! The origin of the live state of a worker, which decides whether a round may begin with it.
//!
//! The memory of a worker's commits does not show this. Rank 0 of a round of newcomers fetches the base into its memory
//! before its state has taken it over. If the first sync of that round is interrupted, the process holds the base but
//! still has the state of its constructor. So this module follows the state itself.
//!
//! # Invariants
//! - A state that was never synced, restored or committed continues no commit.
//! - A state continues at most one commit: the last one that it was made of or sealed as.

use elasticrun_protocol::CommitId;

use super::Commits;
use crate::mutant::{Mutant, planted};

/// The origin of the live state.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveState {
    /// The last commit that the state was made of or sealed as.
    origin: Option<CommitId>,
    /// Whether the state may differ from its origin.
    changed: bool,
    /// Whether a commit has ever reached the state.
    seen: bool,
}

impl LiveState {
    /// The state equals a commit: it was restored from it or sealed as it.
    pub fn became(&mut self, id: CommitId) {
        self.origin = Some(id);
        self.changed = false;
        self.seen = true;
    }

    /// The state was made of a commit, and the user's code may change it from now on.
    pub fn derived_from(&mut self, id: CommitId) {
        self.origin = Some(id);
        self.changed = true;
        self.seen = true;
    }

    /// Training may change the state from now on.
    pub fn changes(&mut self) {
        self.changed = true;
    }

    /// Only commits hold a whole state: a restore has failed, or the origin was dropped from the history.
    pub fn lost(&mut self) {
        self.origin = None;
        self.changed = true;
    }

    /// Drops the origin if its commit was given up.
    pub(super) fn check_kept(&mut self, commits: &impl Commits) {
        if self.origin.is_some_and(|origin| !commits.holds(origin)) {
            self.lost();
        }
    }

    /// The last commit that the state was made of or sealed as. `None` before the first such commit, and after
    /// [`lost`](Self::lost).
    pub fn origin(&self) -> Option<CommitId> {
        self.origin
    }

    /// Whether a commit has ever reached the state.
    pub fn was_synced(&self) -> bool {
        self.seen
    }

    /// Whether the state is known to equal a commit.
    pub fn equals(&self, id: CommitId) -> bool {
        self.origin == Some(id) && !self.changed
    }

    /// Whether a round from `base` may begin with this state, as reset callbacks have left it. Without a base, nothing
    /// was ever committed.
    pub fn continues(&self, base: Option<CommitId>) -> bool {
        base.is_none_or(|base| self.origin == Some(base)) || planted(Mutant::UnseenBase)
    }

    /// Whether a round from `base` would lose all steps with this state: no commit of the job has ever reached it.
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

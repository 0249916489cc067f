//! The start of a round: all members get the same state, that of the round's base.
//!
//! Rank 0 is brought to the base first, unless it holds it. The driver gives rank 0 to a survivor, and names a keeper
//! of the base if other members have committed once more. Then the members exchange what they hold. If all hold the
//! same, nothing is sent. Otherwise rank 0 broadcasts, and each member that holds something else, or nothing, commits
//! the received state under the id of the base. From here on any member can bring the next round to this base. Before
//! members give up their own version of the base, the states decide whether all versions are one state
//! ([`Action::Compare`]).
//!
//! A round without a base begins with the state of rank 0 as it is, which becomes commit 0 of the round. The same holds
//! for a base whose survivors have changed their state since the sync (`fresh`). Each survivor makes its state commit
//! 0. Rank 0, which is one of them, decides which of the two commits applies. Only a state that was made of the base
//! counts as such ([`LiveState`]).
//!
//! All members decide by the same words, so they come to the same decision.

use elasticrun_protocol::{CommitId, Rank};

use super::{BaseSource, Commits, Fingerprint, LiveState, Offer, Over, RoundStart};
use crate::mutant::{Mutant, planted};

/// The next action of a member at the start of a round; [`Machine::synced`](super::Machine::synced) follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Commit the live state.
    Save(CommitId),
    /// Fetch a commit from the keeper.
    Fetch {
        /// The base of the round.
        id: CommitId,
        /// A process of this host, or another host.
        from: BaseSource,
    },
    /// All members: exchange offers; the outcome is [`Outcome::Exchanged`].
    Exchange {
        /// The commit with which this member would begin.
        commit: CommitId,
        /// Whether it is commit 0 of the round.
        is_first: bool,
        /// The base, if the round has one.
        base: Option<CommitId>,
    },
    /// All members: let the states decide whether the different versions of the base are one state.
    Compare(CommitId),
    /// All members: broadcast this commit from rank 0. This member holds it.
    Send(CommitId),
    /// All members: broadcast this commit from rank 0. This member commits the received bytes.
    Receive {
        /// The base of the round, or commit 0 of the round if rank 0 begins with that.
        id: CommitId,
        /// Its fingerprint.
        fingerprint: Fingerprint,
        /// This member held another version under that id, which was given up.
        replaces: bool,
    },
    /// Restore the live state from this commit.
    Restore(CommitId),
    /// The round begins.
    Begin {
        /// Whether the live state was restored.
        restored: bool,
    },
}

/// The outcome of an [`Action`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The action is done.
    Done,
    /// The offers of the members, in the order of their ranks.
    Exchanged(Vec<Offer>),
}

/// Why a round cannot begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyncError {
    /// This process is not at the start of a round, or is in no round.
    Over(Over),
    /// Rank 0 does not hold the commit and cannot get it.
    BaseMissing(CommitId),
}

/// The progress of one member through the start of a round.
#[derive(Clone, Debug)]
pub(super) struct Sync {
    start: RoundStart,
    /// The commit with which this member would begin.
    offer: CommitId,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Makes commit 0 of the live state.
    Saving,
    /// Fetches the base.
    Fetching,
    Exchanging,
    Comparing(Vec<Offer>),
    Transferring {
        target: CommitId,
        received: bool,
    },
    Restoring(CommitId),
    Begun,
}

impl Sync {
    pub(super) fn begin(
        start: RoundStart,
        fresh: bool,
        live: &LiveState,
        commits: &mut impl Commits,
    ) -> (Self, Action) {
        commits.discard_newer(start.base);
        let (first, is_root) = (start.id.commit(0), start.rank == Rank(0));
        // Commit 0 of a state that was not made of the base must not replace the base. Without a base, members may have
        // come to their states in different ways. One commit has one content, so rank 0 alone makes it.
        let based = start.base.is_some() || planted(Mutant::FirstByAll);
        let fresh = fresh && based && live.continues(start.base);
        let mut sync = Self {
            start,
            offer: start.base.unwrap_or(first),
            stage: Stage::Exchanging,
        };
        if fresh || is_root && start.base.is_none() {
            sync.offer = first;
            sync.stage = Stage::Saving;
            return (sync, Action::Save(first));
        }
        let fetch = Self::fetch_base(&start, commits).filter(|_| is_root);
        let action = match fetch {
            Some(fetch) => {
                sync.stage = Stage::Fetching;
                fetch
            }
            None => sync.exchange(),
        };
        (sync, action)
    }

    /// The fetch that a member needs to hold the base; `None` if it holds the base, or there is none.
    pub(super) fn fetch_base(start: &RoundStart, commits: &mut impl Commits) -> Option<Action> {
        commits.discard_newer(start.base);
        let id = start.base.filter(|base| !commits.holds(*base))?;
        let from = start.source;
        Some(Action::Fetch { id, from })
    }

    pub(super) fn advance(
        &mut self,
        outcome: Outcome,
        live: &mut LiveState,
        commits: &mut impl Commits,
    ) -> Result<Action, SyncError> {
        let first = self.start.id.commit(0);
        match (std::mem::replace(&mut self.stage, Stage::Begun), outcome) {
            (Stage::Saving, Outcome::Done) => {
                live.became(first);
                Ok(self.exchange())
            }
            (Stage::Fetching, Outcome::Done) => Ok(self.exchange()),
            (Stage::Exchanging, Outcome::Exchanged(all)) => {
                let base = self.start.base.filter(|_| Offer::bases_differ(&all));
                match base {
                    Some(base) => {
                        self.stage = Stage::Comparing(all);
                        Ok(Action::Compare(base))
                    }
                    None => self.agree_with_root(&all, live, commits),
                }
            }
            (Stage::Comparing(all), Outcome::Done) => self.agree_with_root(&all, live, commits),
            (Stage::Transferring { target, received }, Outcome::Done) => {
                Ok(self.restore(target, received, live, commits))
            }
            (Stage::Restoring(target), Outcome::Done) => {
                live.became(target);
                Ok(Action::Begin { restored: true })
            }
            _ => Err(SyncError::Over(Over::OutOfRound)),
        }
    }

    fn exchange(&mut self) -> Action {
        self.stage = Stage::Exchanging;
        Action::Exchange {
            commit: self.offer,
            is_first: self.offer == self.start.id.commit(0),
            base: self.start.base,
        }
    }

    /// Brings all members to the commit that rank 0 offers: the base of the round or its first commit.
    fn agree_with_root(
        &mut self,
        all: &[Offer],
        live: &mut LiveState,
        commits: &mut impl Commits,
    ) -> Result<Action, SyncError> {
        let first = self.start.id.commit(0);
        let base = self.start.base.unwrap_or(first);
        let own = all.get(self.start.rank.0 as usize);
        let (Some(root), Some(own)) = (all.first(), own) else {
            return Err(SyncError::BaseMissing(self.offer));
        };
        let Some(fingerprint) = root.commit else {
            return Err(SyncError::BaseMissing(self.offer));
        };
        let target = match planted(Mutant::RootNotFollowed) {
            true => self.offer,
            false if root.is_first => first,
            false => base,
        };
        let same = |other: &Offer| (other.commit, other.is_first) == (root.commit, root.is_first);
        if all.iter().all(same) {
            return Ok(self.restore(target, false, live, commits));
        }
        if target < self.offer {
            // This member changed its state and rank 0 did not; rank 0 decides.
            commits.discard(self.offer);
        }
        let held = if target == self.offer {
            own.commit
        } else {
            own.base
        };
        let held = held.filter(|_| commits.holds(target));
        if held == Some(fingerprint) {
            self.stage = Stage::Transferring {
                target,
                received: false,
            };
            return Ok(Action::Send(target));
        }
        if held.is_some() {
            commits.discard(target);
        }
        self.stage = Stage::Transferring {
            target,
            received: true,
        };
        Ok(Action::Receive {
            id: target,
            fingerprint,
            replaces: held.is_some(),
        })
    }

    /// Finishes a transfer: the memory of this member holds `target`, and the live state may have to be restored.
    fn restore(
        &mut self,
        target: CommitId,
        received: bool,
        live: &mut LiveState,
        commits: &impl Commits,
    ) -> Action {
        live.check_kept(commits);
        if !received && live.equals(target) || planted(Mutant::NoRestore) {
            self.stage = Stage::Begun;
            return Action::Begin { restored: false };
        }
        live.lost();
        self.stage = Stage::Restoring(target);
        Action::Restore(target)
    }
}

//! The start of a round: the same state in all members, that of the round's base.
//!
//! Rank 0 is brought to the base first, unless it is there: the driver gives rank 0 to a survivor, and names who keeps
//! the base if others have committed once more. Then the members tell each other what they hold. If it is the same
//! everywhere, nothing is sent. Else rank 0 broadcasts, and each member that holds something else, or nothing, commits what
//! came under the base's id. So from here on any member can bring the next round to this base. Before members give up
//! what they themselves committed as the base, the states say whether all of it is one state ([`Action::Compare`]).
//!
//! A round without a base begins with the state of rank 0 as it is, which becomes commit 0 of the round. So does
//! one with a base whose survivors have changed their state since they were brought to the base (`fresh`): each of them makes it
//! commit 0, and rank 0, which is one of them, says which of the two it is. Only a state that was made of the base counts
//! as such ([`LiveState`]).
//!
//! All members come to the same decision, since all decide by the same words.

use elasticrun_protocol::{CommitId, Rank};

use super::{BaseSource, Commits, Fingerprint, LiveState, Offer, Over, RoundStart};
use crate::mutant::{Mutant, planted};

/// What a member does next at the start of a round; [`Machine::synced`](super::Machine::synced) follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Commit the live state.
    Save(CommitId),
    /// Commit what the keeper has.
    Fetch {
        /// Which commit.
        id: CommitId,
        /// From where: a process of this host, or another host.
        from: BaseSource,
    },
    /// Tell all members, and hear from all: [`Outcome::Exchanged`].
    Exchange {
        /// What this member would begin with.
        commit: CommitId,
        /// That is commit 0 of the round.
        is_first: bool,
        /// The base, if the round has one.
        base: Option<CommitId>,
    },
    /// All members: have the states say whether what they have committed as the base is one state.
    Compare(CommitId),
    /// All members: broadcast this commit from rank 0; this member has it.
    Send(CommitId),
    /// All members: broadcast this commit from rank 0; this member commits what comes.
    Receive {
        /// Which commit.
        id: CommitId,
        /// What it is.
        fingerprint: Fingerprint,
        /// This member had committed something else under that id, which is given up.
        replaces: bool,
    },
    /// Make the live state of this commit.
    Restore(CommitId),
    /// The round begins.
    Begin {
        /// The live state was restored.
        restored: bool,
    },
}

/// What has come of an [`Action`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// What the members have told, in the order of their ranks.
    Exchanged(Vec<Offer>),
}

/// Why a round cannot begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyncError {
    /// This process is not at the start of a round.
    Over(Over),
    /// Rank 0 has no way to the base.
    BaseMissing(CommitId),
}

/// How far the start of a round has come in one member.
#[derive(Clone, Debug)]
pub(super) struct Sync {
    start: RoundStart,
    /// What this member would begin with.
    offer: CommitId,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Makes commit 0 of its live state.
    Saving,
    /// Brings the base here.
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
        // What was not made of the base must not take its place. Where there is none, members may have come to their states in
        // different ways: one commit has one content, so rank 0 alone makes it.
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

    /// How a member that is to hold the base comes to it; `None` if it holds it, or there is none.
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

    /// All members hold the same bytes, under the id that rank 0 offers: the base of the round or its first commit.
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
            // Changed here and not in rank 0, whose word counts.
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

    /// The memory of this member is at `target`; its live state may not be.
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

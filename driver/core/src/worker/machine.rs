//! [`Machine`]: waiting, joining, commits, boundaries, leaving. [`super::sync`] has the start of a round.

use elasticrun_protocol::{CommitId, Rank};

use super::{
    Action, Announcement, Command, Commits, Departure, Ended, Event, Failure, Hooks, Interrupt,
    Join, LiveState, Outcome, Over, RoundId, RoundStart, SetupStep, SyncError, setup::setup,
    signals::Signals, sync::Sync,
};
use crate::mutant::{Mutant, planted};

/// The state machine of a worker.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    signals: Signals,
    life: Life,
    departure: Option<Departure>,
    /// How this process left its last round with the current live state; `None` in the first round of that state.
    returned: Option<Departure>,
    live: LiveState,
    /// The number of rounds in a row whose base could not be fetched.
    failed_fetches: u32,
}

#[derive(Clone, Debug, Default)]
enum Life {
    /// In no round; the agent does not know that the process could join one.
    #[default]
    Outside,
    /// In no round; the agent knows that the process can join one.
    Waiting,
    /// In a round, which may be over.
    Member(Member),
}

#[derive(Clone, Debug)]
struct Member {
    start: RoundStart,
    /// The last commit, or commit 0 of the round.
    last: CommitId,
    interrupt: Option<Interrupt>,
    sync: Option<Sync>,
}

/// The number of failed fetches in a row at which the worker fails.
const MAX_FAILED_FETCHES: u32 = 3;

impl Machine {
    /// Applies a message of the agent, or an observation of a thread of this process.
    pub fn step(&mut self, event: Event, out: &mut Vec<Command>) {
        self.signals.step(event, out);
    }

    /// Why no further round will come; `None` while one may.
    pub fn ended(&self) -> Option<&Ended> {
        self.signals.ended()
    }

    /// Whether the newest started round is over, or no further round will come.
    pub fn newest_is_over(&self) -> bool {
        self.signals.is_over()
    }

    /// Whether the agent has ended a round, or no further round will come.
    pub fn is_over(&self, id: RoundId) -> bool {
        self.signals.ended().is_some() || self.signals.is_aborted(id)
    }

    /// How this process left its last round.
    pub fn departure(&self) -> Option<Departure> {
        self.departure
    }

    /// The next step towards a round.
    ///
    /// A process that was asked to stop announces itself all the same: the announcement shows its agent that it has come
    /// back, so its end is no failure.
    ///
    /// # Errors
    /// [`Over::OutOfRound`] within a round; [`Over::Ended`] if no further round will come.
    pub fn join(&mut self) -> Result<Join, Over> {
        let left = self.departure.map(|departure| departure.round);
        match self.life {
            Life::Member(_) => Err(Over::OutOfRound),
            Life::Outside if self.signals.ended().is_some() && planted(Mutant::StopUnannounced) => {
                Err(Over::OutOfRound)
            }
            Life::Outside => {
                self.life = Life::Waiting;
                let unreachable = left.map(|left| self.signals.take_unreachable(left));
                Ok(Join::Announce(Announcement {
                    left: self.departure,
                    unreachable: unreachable.unwrap_or_default(),
                }))
            }
            Life::Waiting => {
                if let Some(ended) = self.signals.ended() {
                    return Err(Over::Ended(ended.clone()));
                }
                let Some(start) = self.signals.take_start(left) else {
                    return Ok(Join::Wait);
                };
                self.life = Life::Member(Member {
                    start,
                    last: start.id.commit(0),
                    interrupt: None,
                    sync: None,
                });
                Ok(Join::Connect(start))
            }
        }
    }

    /// Returns to the state outside of any round, unknown to the agent. For a process that cannot be announced, or that
    /// cannot connect to its round for a reason that a new round would not change.
    pub fn give_up(&mut self) {
        self.life = Life::Outside;
    }

    /// The round that this process is a member of.
    pub fn round(&self) -> Option<RoundId> {
        self.member().map(|member| member.start.id)
    }

    /// The meaning of a failed operation for the caller. `None`: the operation would fail in any round.
    pub fn judge(&mut self, failure: Failure) -> Option<Over> {
        match failure {
            Failure::Lost { hosts } => {
                if !hosts.is_empty() {
                    let event = Event::HostsUnreachable { hosts };
                    self.signals.step(event, &mut Vec::new());
                }
            }
            Failure::Mismatch if self.signals.is_over() => {
                return Some(Over::Interrupted(Interrupt::WorkersFailed));
            }
            Failure::Mismatch | Failure::Fatal => return None,
        }
        let ended = self.signals.ended().cloned();
        Some(ended.map_or(Over::Interrupted(Interrupt::WorkersFailed), Over::Ended))
    }

    /// Records that an operation of the round has failed in the training thread, so that the round is over for this
    /// process. Returns as [`judge`](Self::judge).
    pub fn failed(&mut self, failure: Failure) -> Option<Over> {
        let over = self.judge(failure);
        let stopped = self.signals.ended().is_some();
        if let Some(member) = self.member_mut()
            && (over.is_some() || stopped)
            && !planted(Mutant::FailureUnnoted)
        {
            // A process that was asked to stop leaves its round as well: otherwise its end would count as a failure.
            member.interrupt.get_or_insert(Interrupt::WorkersFailed);
        }
        over
    }

    /// Whether the round continues, as far as calls of this process have observed.
    ///
    /// # Errors
    /// The reason for which it has ended.
    pub fn check(&mut self) -> Result<(), Over> {
        match self.member() {
            Some(member) if member.interrupt.is_some() => {
                let over = self.over();
                if let Some(member) = self.member_mut().filter(|_| planted(Mutant::InterruptOnce)) {
                    member.interrupt = None;
                }
                Err(over)
            }
            Some(_) => Ok(()),
            None => Err(Over::OutOfRound),
        }
    }

    /// The reason for which the round is over. Later calls give the same reason.
    pub fn over(&mut self) -> Over {
        let ended = self.signals.ended().cloned();
        let Some(member) = self.member_mut() else {
            return Over::OutOfRound;
        };
        let interrupt = *member.interrupt.get_or_insert(Interrupt::WorkersFailed);
        ended.map_or(Over::Interrupted(interrupt), Over::Ended)
    }

    /// The id of the next commit.
    ///
    /// # Errors
    /// [`Over::OutOfRound`].
    pub fn next_commit(&self) -> Result<CommitId, Over> {
        let member = self.member().ok_or(Over::OutOfRound)?;
        Ok(CommitId {
            count: member.last.count + 1,
            ..member.last
        })
    }

    /// Grants a commit of the live state under the returned id; [`committed`](Self::committed) must follow.
    ///
    /// A round that is over still grants it, as long as no operation of this process was cut short (W4).
    ///
    /// # Errors
    /// The reason for which the round has ended.
    pub fn commit(&mut self) -> Result<CommitId, Over> {
        self.check()?;
        let id = self.round().ok_or(Over::OutOfRound)?;
        let whole = !self.signals.is_cut_short(id) || planted(Mutant::HalfCommit);
        let aborted = self.signals.is_aborted(id) && planted(Mutant::AbortedCommitRefused);
        if self.signals.ended().is_some() || !whole || aborted {
            return Err(self.over());
        }
        self.next_commit()
    }

    /// Records that a commit is sealed.
    pub fn committed(&mut self, id: CommitId) {
        if let Some(member) = self.member_mut() {
            member.last.count = id.count - u64::from(planted(Mutant::CommitIdReused));
        }
        self.live.derived_from(id);
    }

    /// Leaves at the common boundary: the live state is that of the last commit, so no member has to restore it. Gives
    /// the value that the training function returns.
    pub fn leave_at_commit(&mut self) -> Interrupt {
        let interrupt = Interrupt::HostsUpdated;
        if let Life::Member(member) = &mut self.life {
            self.live.became(member.last);
            member.interrupt = Some(interrupt);
        }
        interrupt
    }

    /// Records that the live state was made of a commit of this process. If `whole` is false, that failed, and only
    /// commits hold a whole state.
    pub fn restored(&mut self, id: CommitId, whole: bool) {
        match whole {
            true => self.live.derived_from(id),
            false => self.live.lost(),
        }
    }

    /// Records that the user's code may change the live state from now on.
    pub fn train(&mut self) {
        if !planted(Mutant::TrainUnnoted) {
            self.live.changes();
        }
    }

    /// Whether the round continues from a commit to which steps have led, while no commit of the job has ever reached
    /// the live state.
    ///
    /// # Errors
    /// [`Over::OutOfRound`].
    pub fn lacks_base(&self) -> Result<bool, Over> {
        let member = self.member().ok_or(Over::OutOfRound)?;
        Ok(self.live.lacks(member.start.base))
    }

    /// Leaves a round that is over; with `anyway`, one that this process cannot continue. `aborted` is whether the
    /// shared page marks the round as aborted. `None` if the process stays a member.
    pub fn leave(&mut self, anyway: bool, aborted: bool) -> Option<Departure> {
        let member = self.member()?;
        let id = member.start.id;
        if member.interrupt.is_none() && !self.signals.is_cut_short(id) && !anyway {
            return None;
        }
        let updated = member.interrupt == Some(Interrupt::HostsUpdated);
        let departure = Departure {
            round: id.round,
            ordered: updated || aborted,
            committed: updated,
        };
        self.life = Life::Outside;
        self.departure = Some(departure);
        self.returned = Some(departure);
        Some(departure)
    }

    /// Records that another state may be live from now on: this process begins with it, whatever rounds it was in.
    pub fn adopt_state(&mut self) {
        self.returned = None;
        self.live.lost();
    }

    /// The steps from here to the training function, in order. After an error the remaining steps are void and the
    /// caller leaves the round.
    ///
    /// # Errors
    /// [`Over::OutOfRound`].
    pub fn setup(&self, hooks: Hooks) -> Result<Vec<SetupStep>, Over> {
        let start = self.member().ok_or(Over::OutOfRound)?.start;
        let is_root = start.rank == Rank(0);
        let other = start.base.is_some() && self.live.origin() != start.base;
        Ok(setup(hooks, self.returned, is_root, other, &self.live))
    }

    /// Carries out [`SetupStep::FetchBase`]: whether the base must be fetched, and from where.
    ///
    /// # Errors
    /// [`Over::OutOfRound`].
    pub fn fetch_base(&self, commits: &mut impl Commits) -> Result<Option<Action>, Over> {
        let start = self.member().ok_or(Over::OutOfRound)?.start;
        Ok(Sync::fetch_base(&start, commits))
    }

    /// Begins to bring this member to the base of its round.
    ///
    /// With `fresh` the round begins with the live state of members that were in an earlier round: reset callbacks have
    /// changed it, in all such members alike.
    ///
    /// # Errors
    /// [`Over::OutOfRound`].
    pub fn sync(&mut self, fresh: bool, commits: &mut impl Commits) -> Result<Action, Over> {
        let Life::Member(member) = &mut self.life else {
            return Err(Over::OutOfRound);
        };
        let (sync, action) = Sync::begin(member.start, fresh, &self.live, commits);
        member.sync = Some(sync);
        Ok(action)
    }

    /// The action that follows the outcome of the previous action of the start.
    ///
    /// # Errors
    /// The round cannot begin, or this process is in none.
    pub fn synced(
        &mut self,
        outcome: Outcome,
        commits: &mut impl Commits,
    ) -> Result<Action, SyncError> {
        let Life::Member(member) = &mut self.life else {
            return Err(SyncError::Over(Over::OutOfRound));
        };
        let sync = member.sync.as_mut();
        let sync = sync.ok_or(SyncError::Over(Over::OutOfRound))?;
        sync.advance(outcome, &mut self.live, commits)
    }

    /// Carries out [`SetupStep::LoadShards`]: the commit whose shards are to be loaded, which is the base of the round. `None`
    /// if there is none. Only commits are complete from here on, and not the live state.
    ///
    /// # Errors
    /// [`Over::OutOfRound`].
    pub fn load_shards(&mut self, commits: &mut impl Commits) -> Result<Option<CommitId>, Over> {
        let base = self.member().ok_or(Over::OutOfRound)?.start.base;
        if !planted(Mutant::VoidNotDiscarded) {
            commits.discard_newer(base);
        }
        if let Some(base) = base.filter(|_| planted(Mutant::BaseDropped)) {
            commits.discard(base);
        }
        self.live.lost();
        Ok(base)
    }

    /// Records that the live state was made of the base of the round.
    pub fn loaded_shards(&mut self) {
        if let Some(base) = self.member().and_then(|member| member.start.base) {
            self.live.derived_from(base);
        }
    }

    /// Carries out [`SetupStep::SealFirst`]: the id under which this member seals its shard.
    ///
    /// # Errors
    /// [`Over::OutOfRound`].
    pub fn first_commit(&self) -> Result<CommitId, Over> {
        let start = self.member().ok_or(Over::OutOfRound)?.start;
        let base = start.base.filter(|_| planted(Mutant::SealsUnderBase));
        Ok(base.unwrap_or(start.id.commit(0)))
    }

    /// Records that all members have sealed their shards, and agree.
    pub fn all_sealed(&mut self) {
        if let Ok(first) = self.first_commit() {
            self.live.became(first);
        }
    }

    /// Records that the start of the round has failed. The origin of the live state may be gone.
    pub fn sync_failed(&mut self, commits: &impl Commits) {
        self.live.check_kept(commits);
        let stopped = self.signals.ended().is_some();
        if let Some(member) = self.member_mut() {
            member.sync = None;
            if stopped {
                member.interrupt.get_or_insert(Interrupt::WorkersFailed);
            }
        }
    }

    /// Records that the base was fetched.
    pub fn fetched(&mut self) {
        self.failed_fetches = 0;
    }

    /// Records that the base could not be fetched. The host of the keeper may be gone, which the driver will notice. Or
    /// this process alone cannot reach it: `host` is its index in the round, if known. `None`: this process fails.
    pub fn fetch_failed(&mut self, host: Option<u32>) -> Option<Over> {
        self.failed_fetches += 1;
        let failure = Failure::Lost {
            hosts: host.into_iter().collect(),
        };
        let over = self.failed(failure);
        over.filter(|_| self.failed_fetches < MAX_FAILED_FETCHES)
    }

    /// The origin of the live state.
    pub fn live(&self) -> &LiveState {
        &self.live
    }

    fn member(&self) -> Option<&Member> {
        match &self.life {
            Life::Member(member) => Some(member),
            Life::Outside | Life::Waiting => None,
        }
    }

    fn member_mut(&mut self) -> Option<&mut Member> {
        match &mut self.life {
            Life::Member(member) => Some(member),
            Life::Outside | Life::Waiting => None,
        }
    }
}

//! A worker process of the job, for code that drives its rounds: [`crate::run`], and bindings to
//! other languages.
//!
//! Call [`attach`](Worker::attach) first. Then, for each round, call [`join`](Worker::join),
//! [`sync`](Worker::sync), [`train`](Worker::train), commits and boundaries, and
//! [`leave`](Worker::leave) or, once, [`finish`](Worker::finish). Calls in another order return
//! [`Error::OutOfRound`] and do no damage.
//!
//! The collectives of a round are in the [`Group`] that `join` returns. Another thread than that of
//! commits and boundaries may use it. An [`ErrorClassifier`] tells what a failed collective means.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use elasticrun_collectives::{Error as GroupError, Group};
use elasticrun_core::worker::{Event, Hooks, Machine, RoundId, SetupStep};
use elasticrun_protocol::{CommitId, store::Namespace};
use elasticrun_shm::page::{BoundaryCounter, BoundaryOutcome, Phase, WorkerPage};

use crate::{
    Error, State, Store, World,
    agent::{AgentConnection, Inbox, NextJoin, StartedRound},
    round::{classify, connect, fetch_base, record_error, sync},
    sched_boost::{SchedBoost, UntilFirstBoundary},
    state,
};

mod shards;

pub use shards::OpenShard;

/// A worker process of a job.
#[derive(Debug)]
pub struct Worker {
    /// All decisions are made by its machine: [`Inbox::with_machine`].
    agent: AgentConnection,
    round: Option<ActiveRound>,
}

/// The resources of the round that this process is a member of.
#[derive(Debug)]
struct ActiveRound {
    started: StartedRound,
    world: World,
    boundaries: BoundaryCounter,
    /// Set up to the first boundary.
    before_first_boundary: Option<UntilFirstBoundary>,
}

/// The origin of the failure that ends a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureOrigin {
    /// This process.
    Local,
    /// Another member of its round.
    Peer,
}

/// Maximum time until the agent reports the failure of a peer. A silent host is detected by its
/// heartbeat.
const PEER_REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Boundary {
    /// Continue training.
    Continue,
    /// The common boundary: commit, [`Worker::leave_at_commit`], then leave the round.
    Leave,
}

impl Worker {
    /// Attaches to the agent that started this process. Without an agent, this is a single process.
    ///
    /// # Errors
    /// [`Error::RunTwice`] in a process that is a worker already; else the error of the agent or
    /// the system.
    pub fn attach() -> Result<Self, Error> {
        Ok(Self {
            agent: AgentConnection::open()?,
            round: None,
        })
    }

    /// Waits for the next round, at most for `timeout`, and connects to its members. `None` at the
    /// timeout: call again.
    ///
    /// # Errors
    /// [`Error::Removed`] and [`Error::Stopped`] if there will be none for this process;
    /// [`Error::OutOfRound`] before it has left the last one.
    pub fn join(&mut self, timeout: Option<Duration>) -> Result<Option<Group>, Error> {
        if self.round.is_some() {
            return Err(Error::OutOfRound {
                what: "join a round before the last one was left",
            });
        }
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let inbox = Arc::clone(&self.agent.inbox);
        loop {
            let boost =
                SchedBoost::new(inbox.with_machine(|machine| machine.departure()).is_some());
            let mut started = match inbox.next_join(deadline)? {
                NextJoin::Announce(announcement) => {
                    self.agent
                        .announce(announcement)
                        .inspect_err(|_| inbox.with_machine(Machine::give_up))?;
                    continue;
                }
                NextJoin::TimedOut => return Ok(None),
                NextJoin::Connect(started) => started,
            };
            let boundaries = self.agent.page.enter(started.start.round);
            self.agent.memory.share(started.start.size);
            let region = started.region.take();
            match connect(&self.agent, &started, region) {
                Ok(group) => {
                    self.round = Some(ActiveRound {
                        world: World::new(&started.start, &started.member),
                        boundaries,
                        started,
                        before_first_boundary: Some(
                            boost.until_first_boundary(group.best_effort_barrier()),
                        ),
                    });
                    return Ok(Some(group));
                }
                Err(_) if self.leave_machine(started.id(), false) => {}
                Err(error) => {
                    inbox.with_machine(Machine::give_up);
                    return Err(error);
                }
            }
        }
    }

    /// Brings `state` and this process's memory to the base of the round. Returns whether `state`
    /// was written.
    ///
    /// With `fresh`, the round begins with the live state of members that were in an earlier round
    /// instead of their last commit. Use it when reset callbacks have changed that state, in all
    /// such members alike.
    ///
    /// # Errors
    /// An interrupt: leave the round; only commits are complete then. Otherwise the process should
    /// end.
    pub fn sync(
        &mut self,
        group: &mut Group,
        state: &mut (impl State + ?Sized),
        fresh: bool,
    ) -> Result<bool, Error> {
        let active = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        sync(&mut self.agent, &mut active.started, group, state, fresh)
    }

    /// Another state may be live from now on. This process begins with it, whatever rounds it was
    /// in.
    pub fn adopt_state(&self) {
        self.agent.inbox.with_machine(Machine::adopt_state);
    }

    /// The steps from the joined round to the training function. Every SDK carries them out in this
    /// order.
    ///
    /// # Errors
    /// [`Error::OutOfRound`] outside of a round. For a state that is divided among workers,
    /// [`Error::NoReplicaGroups`]; [`Error::Divided`] and [`Error::NotDivided`] for a base of the
    /// other kind.
    pub fn setup(&self, hooks: Hooks) -> Result<Vec<SetupStep>, Error> {
        self.check_division(hooks.divided)?;
        Ok(self
            .agent
            .inbox
            .with_machine(|machine| machine.setup(hooks))?)
    }

    /// [`SetupStep::FetchBase`]: fetches the base of the round into the memory of this process, if
    /// only another process keeps it. Other members are not involved.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn fetch_base(&mut self) -> Result<(), Error> {
        let active = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        fetch_base(&mut self.agent, &mut active.started)
    }

    /// Whether the base of the round and the state of this process are of one kind.
    fn check_division(&self, divided: bool) -> Result<(), Error> {
        let active = self.round.as_ref().ok_or(Error::NO_ROUND)?;
        let start = &active.started.start;
        match (divided, start.base, start.base_shards) {
            (true, ..) if active.world.seat.is_none() => Err(Error::NoReplicaGroups),
            (true, Some(id), None) => Err(Error::NotDivided { id }),
            (false, Some(id), Some(_)) => Err(Error::Divided { id }),
            _ => Ok(()),
        }
    }

    /// Marks the state as changing. It is known again at the next common boundary or sync.
    pub fn train(&mut self) {
        self.agent.inbox.with_machine(Machine::train);
    }

    /// The members of the round, if this process is one.
    pub fn world(&self) -> Option<&World> {
        self.round.as_ref().map(|active| &active.world)
    }

    /// Whether the host of this process may or will go away, as far as its agent knows. The flag is
    /// never reset. It is a word in memory: no message and no system call. Other members may see
    /// another answer at the same moment; [`Session::at_risk`](crate::Session::at_risk) is the same
    /// for all.
    pub fn host_at_risk(&self) -> bool {
        self.agent.page.at_risk()
    }

    /// The id of the next commit.
    ///
    /// # Errors
    /// [`Error::OutOfRound`] outside of a round, which has no commits.
    pub fn next_commit(&self) -> Result<CommitId, Error> {
        Ok(self
            .agent
            .inbox
            .with_machine(|machine| machine.next_commit())?)
    }

    /// Commits a state without a boundary; call [`Worker::boundary`] afterwards. It blocks while
    /// the lease of this process has expired, because its agent or its driver is stopped.
    ///
    /// It also commits in a round that is over, as long as that has cut short no call of this
    /// process (W4).
    ///
    /// # Errors
    /// An interrupt if a call of this process has found the round over; [`Error::Save`] and
    /// [`Error::Commit`], and the previous commit stays the newest.
    pub fn seal(&mut self, state: &(impl State + ?Sized)) -> Result<CommitId, Error> {
        let active = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        let inbox = &self.agent.inbox;
        let id = inbox.with_machine_in_round(active.started.id(), Machine::commit)?;
        active.boundaries.wait_until_leased();
        self.agent.memory.save(id, state)?;
        self.agent.page.count_commit();
        inbox.with_machine(|machine| machine.committed(id));
        Ok(id)
    }

    /// One boundary: a few nanoseconds and no system call while nothing changes. While the driver
    /// asks all members for their common boundary, it blocks for a round trip.
    ///
    /// # Errors
    /// An interrupt if the round is over.
    pub fn boundary(&mut self) -> Result<Boundary, Error> {
        let active = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        self.agent.inbox.with_machine(Machine::check)?;
        if let Some(before_first_boundary) = active.before_first_boundary.take() {
            before_first_boundary.end();
        }
        match active.boundaries.boundary() {
            BoundaryOutcome::Continue => Ok(Boundary::Continue),
            BoundaryOutcome::Leave => Ok(Boundary::Leave),
            BoundaryOutcome::Aborted => Err(self.agent.inbox.with_machine(Machine::over).into()),
        }
    }

    /// Leaves at the common boundary, where the state is that of the last commit. No member has to
    /// restore it.
    pub fn leave_at_commit(&mut self) -> Error {
        self.agent
            .inbox
            .with_machine(Machine::leave_at_commit)
            .into()
    }

    /// Restores the state of the newest commit of this process by `restore`. `None` if there is no
    /// commit.
    ///
    /// # Errors
    /// [`Error::Commit`] if it cannot be read.
    pub fn restore_with<T, E>(
        &mut self,
        restore: impl FnOnce(CommitId, &[u8]) -> Result<T, E>,
    ) -> Result<Option<Result<T, E>>, Error> {
        let Some(id) = self.agent.memory.newest() else {
            return Ok(None);
        };
        let restored = restore(id, self.agent.memory.bytes(id)?);
        let whole = restored.is_ok();
        self.agent
            .inbox
            .with_machine(|machine| machine.restored(id, whole));
        Ok(Some(restored))
    }

    /// Whether the round continues from a commit after some steps, while the state of this process
    /// never received any of the job's commits. [`sync`](Self::sync) brings it. A state that keeps
    /// nothing in commits cannot be brought up.
    ///
    /// # Errors
    /// [`Error::OutOfRound`] outside of a round.
    pub fn lacks_base(&self) -> Result<bool, Error> {
        Ok(self
            .agent
            .inbox
            .with_machine(|machine| machine.lacks_base())?)
    }

    /// Restores from the newest commit of this process. `false` if there is none.
    ///
    /// # Errors
    /// [`Error::Commit`] and [`Error::Restore`].
    pub fn restore_newest(&mut self, state: &mut (impl State + ?Sized)) -> Result<bool, Error> {
        match self.restore_with(|_, bytes| state::restore_all(state, bytes))? {
            Some(restored) => restored.map(|()| true).map_err(Error::Restore),
            None => Ok(false),
        }
    }

    /// Whether the round continues, as far as calls of this process know.
    ///
    /// # Errors
    /// The interrupt that has ended it.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        Ok(self.agent.inbox.with_machine(Machine::check)?)
    }

    /// Records the error of a failed collective of the round. Returns the error to pass on.
    pub fn record_error(&mut self, error: GroupError) -> Error {
        record_error(&self.agent.inbox, error)
    }

    /// The keys of the round in the job's key-value store.
    ///
    /// # Errors
    /// [`Error::OutOfRound`] outside of one.
    pub fn store(&self) -> Result<Store, Error> {
        let active = self.round.as_ref().ok_or(Error::NO_ROUND)?;
        let namespace = Namespace::Round {
            epoch: active.started.start.epoch,
            round: active.started.start.round,
        };
        Ok(self.keys(namespace))
    }

    /// The keys of the job in its key-value store. They stay from round to round.
    pub fn job_store(&self) -> Store {
        self.keys(Namespace::Job)
    }

    fn keys(&self, namespace: Namespace) -> Store {
        Store::new(Arc::clone(self.agent.inbox.store()), namespace)
    }

    /// A classifier for the errors of the round's collectives, usable on any thread.
    pub fn error_classifier(&self) -> ErrorClassifier {
        ErrorClassifier {
            inbox: Arc::clone(&self.agent.inbox),
            page: self.agent.page.clone(),
            round: self.round.as_ref().map(|active| active.started.id()),
        }
    }

    /// Whether the round was aborted or this process was told to stop. Not a boundary.
    pub fn is_over(&self) -> bool {
        let in_round = self.round.as_ref();
        let ended = |machine: &mut Machine| machine.ended().is_some();
        self.agent.inbox.with_machine(ended)
            || in_round.is_some_and(|active| {
                active.boundaries.aborted()
                    || self.agent.inbox.with_machine(Machine::check).is_err()
            })
    }

    /// Leaves a round that an interrupt has ended or, if `anyway`, one that this process cannot
    /// continue for a reason of its own. Drop the group before: its peers must receive the last
    /// data of this round before the first of the next. Returns `false` if this process stays a
    /// member.
    pub fn leave(&mut self, anyway: bool) -> bool {
        let Some(id) = self.round.as_ref().map(|active| active.started.id()) else {
            return false;
        };
        let left = self.leave_machine(id, anyway);
        if left {
            self.round = None;
        }
        left
    }

    fn leave_machine(&self, id: RoundId, anyway: bool) -> bool {
        let page = &self.agent.page;
        let leave = |machine: &mut Machine| machine.leave(anyway, page.aborted(id.round));
        let left = self.agent.inbox.with_machine_in_round(id, leave).is_some();
        if left {
            page.set_phase(Phase::Left);
        }
        left
    }

    /// Reports that this process has failed and ends soon, with a non-zero exit code. The others
    /// continue at once, and do not wait until the process has cleaned up.
    ///
    /// `origin` is the origin of the failure. A failed peer reports itself first, so for
    /// `FailureOrigin::Peer` this waits for that report, at most five seconds. Otherwise the job
    /// might end by the consequence before the cause is known.
    pub fn fail(&self, origin: FailureOrigin) {
        if origin == FailureOrigin::Peer {
            self.agent.inbox.wait_until_over(PEER_REPORT_TIMEOUT);
        }
        self.agent.fail();
    }

    /// Reports that training is done. The job ends when it is done in all workers. The group may
    /// still be used and should be kept until the process ends, since others may still read data
    /// from it that they need to finish.
    pub fn finish(&self) {
        if let Some(active) = &self.round {
            self.agent.finish(active.world.round());
        }
    }
}

/// Classifies the errors of collectives for this worker. See [`Worker::error_classifier`].
#[derive(Clone, Debug)]
pub struct ErrorClassifier {
    inbox: Arc<Inbox>,
    page: WorkerPage,
    /// The round in which it was created.
    round: Option<RoundId>,
}

impl ErrorClassifier {
    /// The error to pass on: an interrupt, unless a new round would not help.
    pub fn error(&self, error: GroupError) -> Error {
        classify(&self.inbox, error)
    }

    /// Refuses commits of this classifier's round from now on (W4): an operation has failed, or is
    /// about to be cut short without an error for its caller.
    pub fn refuse_commits(&self) {
        if let Some(id) = self.round {
            self.inbox.handle(Event::CutShort { id });
        }
    }

    /// Calls `held` with the number of each round for which the job asks all members for their
    /// common boundary, from now on. It runs on a thread of its own that ends with the process.
    /// Call this once.
    ///
    /// # Errors
    /// [`Error::System`] if no thread can be started.
    pub fn on_hold(&self, held: impl Fn(u64) + Send + 'static) -> Result<(), Error> {
        let page = self.page.clone();
        std::thread::Builder::new()
            .name("elasticrun-holds".into())
            .spawn(move || {
                let mut last = None;
                loop {
                    let round = page.wait_for_hold(last);
                    last = Some(round);
                    held(round.0);
                }
            })
            .map(drop)
            .map_err(Error::system("start a thread"))
    }

    /// Calls `aborted` with the number of each round that is aborted from now on. It runs on the
    /// thread of the SDK and must not block. It replaces the previous callback.
    pub fn on_abort(&self, aborted: Option<Box<dyn Fn(u64) + Send>>) {
        self.inbox.on_abort(aborted);
    }
}

//! A process of the job, for who drives its rounds: [`crate::run`], and bindings to other languages.
//!
//! The way of a process: [`attach`](Worker::attach), then for each round [`join`](Worker::join),
//! [`sync`](Worker::sync), [`train`](Worker::train), commits and boundaries, and [`leave`](Worker::leave) or,
//! once, [`finish`](Worker::finish). Calls out of this order are errors ([`Error::OutOfRound`]), never
//! damage.
//!
//! The collectives of a round are in the [`Group`] that `join` gives, and may be used by another thread than
//! commits and boundaries. What a failed one means is said by a [`Judge`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use elasticrun_collectives::{Error as GroupError, Group};
use elasticrun_core::worker::{Event, Hooks, Machine, RoundId, SetupStep};
use elasticrun_protocol::{CommitId, store::Namespace};
use elasticrun_shm::page::{AtBoundary, InRound, Phase, WorkerPage};

use crate::{
    Error, State, Store, World,
    agent::{Inbox, Link, NextJoin, Started},
    hurry::{Hurry, Start},
    round::{connect, failed, fetch_base, judge, sync},
    state,
};

/// See the module.
#[derive(Debug)]
pub struct Worker {
    /// What decides is its machine: [`Inbox::ask`].
    link: Link,
    round: Option<Course>,
}

/// What the shell has of a round that this process is a member of.
#[derive(Debug)]
struct Course {
    started: Started,
    world: World,
    boundaries: InRound,
    /// Up to the first boundary.
    beginning: Option<Start>,
}

/// Whose failure ends a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Through {
    /// Its own.
    Itself,
    /// That of another member of its round.
    Peer,
}

/// How long it may take until it is said that a peer has failed: that of a host that fell silent by its heartbeat.
const PEER_SPEAKS: Duration = Duration::from_secs(5);

/// What a boundary says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Boundary {
    /// Train on.
    Continue,
    /// The common boundary: commit, [`Worker::leave_at_commit`], then leave the round.
    Leave,
}

impl Worker {
    /// Attaches to the agent that started this process; without one, this process is the world.
    ///
    /// # Errors
    /// [`Error::RunTwice`] in a process that is a worker already; else what the agent or the system said.
    pub fn attach() -> Result<Self, Error> {
        Ok(Self {
            link: Link::open()?,
            round: None,
        })
    }

    /// Waits for the next round, at most as long as `patience`, and connects to its members. `None` if it did
    /// not come: call again.
    ///
    /// # Errors
    /// [`Error::Removed`] and [`Error::Stopped`] if there will be none for this process;
    /// [`Error::OutOfRound`] before it has left the last one.
    pub fn join(&mut self, patience: Option<Duration>) -> Result<Option<Group>, Error> {
        if self.round.is_some() {
            return Err(Error::OutOfRound {
                what: "join a round before the last one was left",
            });
        }
        let deadline = patience.map(|patience| Instant::now() + patience);
        let inbox = Arc::clone(&self.link.inbox);
        loop {
            let hurry = Hurry::new(inbox.ask(|machine| machine.departure()).is_some());
            let mut started = match inbox.next_join(deadline)? {
                NextJoin::Announce(announcement) => {
                    self.link
                        .announce(announcement)
                        .inspect_err(|_| inbox.ask(Machine::give_up))?;
                    continue;
                }
                NextJoin::Late => return Ok(None),
                NextJoin::Connect(started) => started,
            };
            let boundaries = self.link.page.enter(started.start.round);
            let region = started.region.take();
            match connect(&self.link, &started, region) {
                Ok(group) => {
                    self.round = Some(Course {
                        world: World::new(&started.start, &started.member),
                        boundaries,
                        started,
                        beginning: Some(hurry.until(group.best_effort_barrier())),
                    });
                    return Ok(Some(group));
                }
                Err(_) if self.leave_machine(started.id(), false) => {}
                Err(error) => {
                    inbox.ask(Machine::give_up);
                    return Err(error);
                }
            }
        }
    }

    /// Brings `state` and this process's memory to the base of the round. Gives whether `state` was written.
    ///
    /// `fresh` says that the live state of a member that has been in an earlier round is to be what the round begins
    /// with, and not what it last committed: reset callbacks have changed it, in all such members alike.
    ///
    /// # Errors
    /// An interrupt: leave the round, the state is whole nowhere but in commits. Else the process should end.
    pub fn sync(
        &mut self,
        group: &mut Group,
        state: &mut (impl State + ?Sized),
        fresh: bool,
    ) -> Result<bool, Error> {
        let course = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        sync(&mut self.link, &mut course.started, group, state, fresh)
    }

    /// Another state may be live from now on: this process begins with it, whatever rounds it was in.
    pub fn adopt_state(&self) {
        self.link.inbox.ask(Machine::adopt_state);
    }

    /// The steps from the joined round to the training function, which every SDK carries out in this order.
    ///
    /// # Errors
    /// [`Error::OutOfRound`] outside of a round.
    pub fn setup(&self, hooks: Hooks) -> Result<Vec<SetupStep>, Error> {
        Ok(self.link.inbox.ask(|machine| machine.setup(hooks))?)
    }

    /// [`SetupStep::FetchBase`]: has the memory of this process hold the base of the round, which another process may keep.
    /// No other member has a part in it.
    ///
    /// # Errors
    /// As of [`sync`](Self::sync).
    pub fn fetch_base(&mut self) -> Result<(), Error> {
        let course = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        fetch_base(&mut self.link, &mut course.started)
    }

    /// The state is about to change: what it is will be known again at the next common boundary or sync.
    pub fn train(&mut self) {
        self.link.inbox.ask(Machine::train);
    }

    /// The members of the round, if this process is one.
    pub fn world(&self) -> Option<&World> {
        self.round.as_ref().map(|course| &course.world)
    }

    /// Whether the host of this process may or will go away, as far as its agent has heard; that is not taken back. A
    /// word in memory: no message and no system call. Other members may see another answer at the same moment:
    /// [`Session::at_risk`](crate::Session::at_risk) is the same for all.
    pub fn host_at_risk(&self) -> bool {
        self.link.page.at_risk()
    }

    /// The id that the next commit will have.
    ///
    /// # Errors
    /// [`Error::OutOfRound`] outside of a round, which has no commits.
    pub fn next_commit(&self) -> Result<CommitId, Error> {
        Ok(self.link.inbox.ask(|machine| machine.next_commit())?)
    }

    /// Commits a state, without a look at the hosts of the job: [`Worker::boundary`] follows. It blocks while the lease of
    /// this process is over, as its agent or its driver stands still.
    ///
    /// Also in a round that is over, as long as nothing of this process was cut short by that (W4).
    ///
    /// # Errors
    /// An interrupt if a call of this process has found the round over; [`Error::Save`] and [`Error::Commit`], and the
    /// commit before is the newest.
    pub fn seal(&mut self, state: &(impl State + ?Sized)) -> Result<CommitId, Error> {
        let course = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        let inbox = &self.link.inbox;
        let id = inbox.ask_in(course.started.id(), Machine::commit)?;
        course.boundaries.wait_until_leased();
        self.link.memory.save(id, state)?;
        self.link.page.count_commit();
        inbox.ask(|machine| machine.committed(id));
        Ok(id)
    }

    /// One boundary: a few nanoseconds and no system call while nothing changes; while the driver asks all
    /// members for their common boundary, it blocks for a round trip.
    ///
    /// # Errors
    /// An interrupt if the round is over.
    pub fn boundary(&mut self) -> Result<Boundary, Error> {
        let course = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        self.link.inbox.ask(Machine::check)?;
        if let Some(beginning) = course.beginning.take() {
            beginning.end();
        }
        match course.boundaries.boundary() {
            AtBoundary::Continue => Ok(Boundary::Continue),
            AtBoundary::Leave => Ok(Boundary::Leave),
            AtBoundary::Aborted => Err(self.link.inbox.ask(Machine::over).into()),
        }
    }

    /// The state is that of the last commit, made at the common boundary: no member has to restore it.
    pub fn leave_at_commit(&mut self) -> Error {
        self.link.inbox.ask(Machine::leave_at_commit).into()
    }

    /// Has `restore` make the state of the newest commit of this process; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Commit`] if it cannot be read.
    pub fn restore_with<T, E>(
        &mut self,
        restore: impl FnOnce(CommitId, &[u8]) -> Result<T, E>,
    ) -> Result<Option<Result<T, E>>, Error> {
        let Some(id) = self.link.memory.newest() else {
            return Ok(None);
        };
        let restored = restore(id, self.link.memory.bytes(id)?);
        let whole = restored.is_ok();
        self.link.inbox.ask(|machine| machine.restored(id, whole));
        Ok(Some(restored))
    }

    /// Whether the round goes on from a commit that steps have led to, and none of the job's commits ever reached the state of
    /// this process. [`sync`](Self::sync) brings it; where a state keeps nothing in commits, nothing does.
    ///
    /// # Errors
    /// [`Error::OutOfRound`] outside of a round.
    pub fn lacks_base(&self) -> Result<bool, Error> {
        Ok(self.link.inbox.ask(|machine| machine.lacks_base())?)
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

    /// Whether the round goes on, as far as calls of this process have found out.
    ///
    /// # Errors
    /// The interrupt that has ended it.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        Ok(self.link.inbox.ask(Machine::check)?)
    }

    /// A collective of the round failed with this error.
    pub fn failed(&mut self, error: GroupError) -> Error {
        failed(&self.link.inbox, error)
    }

    /// The keys of the round in the job's key-value store.
    ///
    /// # Errors
    /// [`Error::OutOfRound`] outside of one.
    pub fn store(&self) -> Result<Store, Error> {
        let course = self.round.as_ref().ok_or(Error::NO_ROUND)?;
        let namespace = Namespace::Round {
            epoch: course.started.start.epoch,
            round: course.started.start.round,
        };
        Ok(self.keys(namespace))
    }

    /// The keys of the job in its key-value store. They stay from round to round.
    pub fn job_store(&self) -> Store {
        self.keys(Namespace::Job)
    }

    fn keys(&self, namespace: Namespace) -> Store {
        Store::new(Arc::clone(self.link.inbox.store()), namespace)
    }

    /// Tells what failed collectives of the round mean, on any thread.
    pub fn judge(&self) -> Judge {
        Judge {
            inbox: Arc::clone(&self.link.inbox),
            page: self.link.page.clone(),
            round: self.round.as_ref().map(|course| course.started.id()),
        }
    }

    /// Whether the round was aborted or this process was told to stop, without a boundary.
    pub fn is_over(&self) -> bool {
        let in_round = self.round.as_ref();
        let ended = |machine: &mut Machine| machine.ended().is_some();
        self.link.inbox.ask(ended)
            || in_round.is_some_and(|course| {
                course.boundaries.aborted() || self.link.inbox.ask(Machine::check).is_err()
            })
    }

    /// Leaves a round that an interrupt has ended, or, if `anyway`, one that this process cannot go on with for a
    /// reason of its own. The group must have been dropped before: its last sign to peers of this round comes
    /// before the first one of the next. `false` if this process stays a member.
    pub fn leave(&mut self, anyway: bool) -> bool {
        let Some(id) = self.round.as_ref().map(|course| course.started.id()) else {
            return false;
        };
        let left = self.leave_machine(id, anyway);
        if left {
            self.round = None;
        }
        left
    }

    fn leave_machine(&self, id: RoundId, anyway: bool) -> bool {
        let page = &self.link.page;
        let leave = |machine: &mut Machine| machine.leave(anyway, page.aborted(id.round));
        let left = self.link.inbox.ask_in(id, leave).is_some();
        if left {
            page.set_phase(Phase::Left);
        }
        left
    }

    /// This process has failed and ends soon, with a non-zero exit code. The others go on at once, and do not wait until
    /// the process has cleaned up.
    ///
    /// `through` says whose failure it is. That of a peer is told by the peer first, so it is waited for, at most five
    /// seconds: else the job might end by the consequence, before its cause could say what it is.
    pub fn fail(&self, through: Through) {
        if through == Through::Peer {
            self.link.inbox.wait_until_over(PEER_SPEAKS);
        }
        self.link.fail();
    }

    /// Training is done: the job ends when it is for all. The group may be used on, and should be kept until
    /// the process ends, since others may still read from it what they need to be done as well.
    pub fn finish(&self) {
        if let Some(course) = &self.round {
            self.link.finish(course.world.round());
        }
    }
}

/// What failed collectives mean to this worker. See [`Worker::judge`].
#[derive(Clone, Debug)]
pub struct Judge {
    inbox: Arc<Inbox>,
    page: WorkerPage,
    /// The round it was made in.
    round: Option<RoundId>,
}

impl Judge {
    /// The error to hand on: an interrupt, unless a new round would not change it.
    pub fn error(&self, error: GroupError) -> Error {
        judge(&self.inbox, error)
    }

    /// From now on commits of the round that this was made in are refused (W4): an operation has failed, or is about to be
    /// cut short without anybody being told.
    pub fn refuse_commits(&self) {
        if let Some(id) = self.round {
            self.inbox.tell(Event::CutShort { id });
        }
    }

    /// Calls `held` with the number of each round for which the job asks all members for their common boundary, from
    /// now on, on a thread of its own that ends with the process. Once.
    ///
    /// # Errors
    /// [`Error::System`] if no thread can be started.
    pub fn on_hold(&self, held: impl Fn(u64) + Send + 'static) -> Result<(), Error> {
        let page = self.page.clone();
        std::thread::Builder::new()
            .name("elasticrun-holds".into())
            .spawn(move || {
                let mut told = None;
                loop {
                    let round = page.wait_for_hold(told);
                    told = Some(round);
                    held(round.0);
                }
            })
            .map(drop)
            .map_err(Error::system("start a thread"))
    }

    /// Calls `aborted` with the number of each round that is aborted from now on, on the thread of the SDK, which must not be held
    /// up. It replaces what was to be called before.
    pub fn on_abort(&self, aborted: Option<Box<dyn Fn(u64) + Send>>) {
        self.inbox.on_abort(aborted);
    }
}

//! One round, as the training function sees it.

use elasticrun_collectives::{Element, Group, Op};
use elasticrun_protocol::CommitId;
use elasticrun_shared::{
    page::{AtBoundary, InRound, Phase},
    slice,
};

use crate::{
    Error, Interrupt, State, World,
    agent::{Left, Link, Started},
    round::{Live, connect, judge, sync},
};

/// A worker's place in a round: commits, boundaries and collectives.
///
/// Every call fails once the round is over, with the same error from then on; return it from the training
/// function. All members make the same calls of collectives, commits and checks in the same order.
#[derive(Debug)]
pub struct Session<'a> {
    link: &'a mut Link,
    live: &'a mut Live,
    world: World,
    group: Group,
    boundaries: InRound,
    /// The commit made last, or the one that the round began with.
    last: CommitId,
    interrupt: Option<Interrupt>,
    /// Up to the first boundary of a round that follows another.
    hurry: Option<slice::Short>,
}

impl<'a> Session<'a> {
    /// Enters a round: connects, and brings the state to the round's base.
    pub(crate) fn begin<S: State + ?Sized>(
        link: &'a mut Link,
        mut started: Started,
        state: &mut S,
        live: &'a mut Live,
        hurry: Option<slice::Short>,
    ) -> Result<Self, Error> {
        let boundaries = link.page.enter(started.start.round);
        let region = started.region.take();
        let mut group = connect(link, &started, region)?;
        sync(link, &mut started, &mut group, state, live)?;
        let world = World::new(&started.start, &started.member);
        state.reset(&world);
        Ok(Self {
            link,
            live,
            group,
            boundaries,
            last: CommitId {
                epoch: started.start.epoch,
                round: started.start.round,
                count: 0,
            },
            world,
            interrupt: None,
            hurry,
        })
    }

    /// The members of the round.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Place of this worker, `0..size`.
    pub fn rank(&self) -> u32 {
        self.world.rank()
    }

    /// Workers of the round.
    pub fn size(&self) -> u32 {
        self.world.size()
    }

    /// Slot of this worker on its host.
    pub fn local_rank(&self) -> u32 {
        self.world.local_rank()
    }

    /// Workers of the round on this host.
    pub fn local_size(&self) -> u32 {
        self.world.local_size()
    }

    /// Place of this host among the hosts that have this `local_rank`.
    pub fn cross_rank(&self) -> u32 {
        self.world.cross_rank()
    }

    /// How many hosts have this `local_rank`.
    pub fn cross_size(&self) -> u32 {
        self.world.cross_size()
    }

    /// The id that the next commit will have.
    pub fn next_commit(&self) -> CommitId {
        CommitId {
            count: self.last.count + 1,
            ..self.last
        }
    }

    /// Commits the state: from here on no failure loses what it holds. A boundary, too: the job's hosts
    /// change here or at the next one.
    ///
    /// It copies the state into memory of the agent and talks to nobody. It blocks only while the driver asks
    /// all members for their common boundary, for a round trip.
    ///
    /// # Errors
    /// [`Interrupt::HostsUpdated`], and the commit is made; [`Interrupt::WorkersFailed`], and it may be.
    /// [`Error::Save`] and [`Error::Commit`], and the commit before is the newest.
    pub fn commit(&mut self, state: &(impl State + ?Sized)) -> Result<CommitId, Error> {
        self.check()?;
        let id = self.seal(state)?;
        self.hurry = None;
        match self.boundaries.boundary() {
            AtBoundary::Continue => Ok(id),
            AtBoundary::Leave => Err(self.leave_at(id)),
            AtBoundary::Aborted => Err(self.over()),
        }
    }

    /// A boundary without a commit: looks whether the hosts of the job change. Then all members stop at the
    /// same check (or commit), and it commits the state.
    ///
    /// A few nanoseconds and no system call while nothing changes.
    ///
    /// # Errors
    /// As [`Session::commit`].
    pub fn check_host_updates(&mut self, state: &(impl State + ?Sized)) -> Result<(), Error> {
        if self.interrupt.is_some() {
            return Err(self.over());
        }
        self.hurry = None;
        match self.boundaries.boundary() {
            AtBoundary::Continue => Ok(()),
            AtBoundary::Leave => {
                let id = self.seal(state)?;
                Err(self.leave_at(id))
            }
            AtBoundary::Aborted => Err(self.over()),
        }
    }

    /// Waits until all members are here.
    ///
    /// # Errors
    /// [`Interrupt::WorkersFailed`] if the round is over; [`Error::Collective`] if a member called something else.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.collect(Group::barrier)
    }

    /// Combines the `data` of all members element by element, in place; all get the same bits.
    ///
    /// # Errors
    /// As [`Session::barrier`]; `data` holds anything then.
    pub fn allreduce<T: Element>(&mut self, data: &mut [T], op: Op) -> Result<(), Error> {
        self.collect(|group| group.allreduce(data, op))
    }

    /// Brings the `data` of rank `root` to all. All pass the same length.
    ///
    /// # Errors
    /// As [`Session::barrier`]; [`Error::Collective`] also if there is no rank `root`.
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: u32) -> Result<(), Error> {
        self.collect(|group| group.broadcast(data, root))
    }

    /// Brings the bytes of rank `root`, of any number, to all.
    ///
    /// # Errors
    /// As [`Session::broadcast`].
    pub fn broadcast_bytes(&mut self, data: &mut Vec<u8>, root: u32) -> Result<(), Error> {
        self.collect(|group| group.broadcast_bytes(data, root))
    }

    /// Brings the `own` elements of each member to all, in order of rank. All pass the same length.
    ///
    /// # Errors
    /// As [`Session::barrier`].
    pub fn allgather<T: Element>(&mut self, own: &[T]) -> Result<Vec<T>, Error> {
        let mut all = vec![T::zeroed(); own.len() * self.size() as usize];
        self.collect(|group| group.allgather(own, &mut all))?;
        Ok(all)
    }

    /// Brings the `own` bytes of each member, of any number, to all, in order of rank.
    ///
    /// # Errors
    /// As [`Session::barrier`].
    pub fn allgather_bytes(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.collect(|group| group.allgatherv(own))
    }

    /// Combines the `input` of all members and gives each one its share: `input` has a block of
    /// `output.len()` elements for each rank.
    ///
    /// # Errors
    /// As [`Session::barrier`]; [`Error::Collective`] also if the lengths do not fit.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: Op,
    ) -> Result<(), Error> {
        self.collect(|group| group.reduce_scatter(input, output, op))
    }

    fn collect<T>(
        &mut self,
        operation: impl FnOnce(&mut Group) -> Result<T, elasticrun_collectives::Error>,
    ) -> Result<T, Error> {
        if self.interrupt.is_some() {
            return Err(self.over());
        }
        operation(&mut self.group).map_err(|error| {
            let error = judge(error, &self.link.inbox);
            // Who is told to stop leaves the round as well, and its agent hears that it came back for that.
            let stopped = self.link.inbox.ended().map(|_| Interrupt::WorkersFailed);
            self.interrupt = self.interrupt.or(error.interrupt()).or(stopped);
            error
        })
    }

    /// W1: an abort that came before is seen now.
    fn check(&mut self) -> Result<(), Error> {
        if self.interrupt.is_some() || self.boundaries.aborted() {
            return Err(self.over());
        }
        Ok(())
    }

    /// The error of a round that is over.
    fn over(&mut self) -> Error {
        let interrupt = *self.interrupt.get_or_insert(Interrupt::WorkersFailed);
        self.link.inbox.ended().unwrap_or(interrupt.into())
    }

    fn seal(&mut self, state: &(impl State + ?Sized)) -> Result<CommitId, Error> {
        let id = self.next_commit();
        self.link.memory.save(id, state)?;
        self.link.page.count_commit();
        self.last = id;
        Ok(id)
    }

    fn leave_at(&mut self, id: CommitId) -> Error {
        *self.live = Live(Some(id));
        self.interrupt = Some(Interrupt::HostsUpdated);
        Interrupt::HostsUpdated.into()
    }

    /// The training function is about to run: what it does to the state is known when it leaves in order.
    pub(crate) fn train(&mut self) {
        *self.live = Live(None);
    }

    /// The training function gave an error. How the round was left, if it was over; else the error is its own.
    pub(crate) fn leave(self) -> Option<Left> {
        let interrupt = self.interrupt?;
        let round = self.world.round();
        // The last sign for peers of this round, before the first one of the next.
        drop(self.group);
        self.link.page.set_phase(Phase::Left);
        Some(Left {
            round,
            told: interrupt == Interrupt::HostsUpdated || self.link.page.aborted(round),
        })
    }

    /// The training function is done. The group stays until the process ends, since others may still read
    /// from it what they need to be done as well.
    pub(crate) fn finish(self) {
        self.link.finish(self.world.round());
        std::mem::forget(self.group);
    }
}

//! One round, as the training function sees it.

use elasticrun_collectives::{Element, Group, Op};
use elasticrun_protocol::CommitId;

use crate::{Error, State, Store, Worker, World, worker::Boundary};

/// A worker's place in a round: commits, boundaries and collectives.
///
/// Every call fails once the round is over, with the same error from then on; return it from the training
/// function. All members make the same calls of collectives, commits and checks in the same order.
#[derive(Debug)]
pub struct Session<'a> {
    worker: &'a mut Worker,
    world: World,
    group: Group,
    store: Store,
    /// The id that the next commit will have.
    next: CommitId,
}

impl<'a> Session<'a> {
    /// Of a worker that has joined and synced.
    pub(crate) fn new(worker: &'a mut Worker, group: Group) -> Result<Self, Error> {
        let next = worker.next_commit()?;
        let world = worker.world().cloned().ok_or(Error::NO_ROUND)?;
        let store = worker.store()?;
        Ok(Self {
            worker,
            world,
            store,
            group,
            next,
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

    /// The keys of this round in the job's key-value store. A handle may be kept and used by other threads; its
    /// calls fail once the round is over.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// The keys of the job in its key-value store. They stay from round to round.
    pub fn job_store(&self) -> Store {
        self.worker.job_store()
    }

    /// The id that the next commit will have.
    pub fn next_commit(&self) -> CommitId {
        self.next
    }

    /// Commits the state: from here on no failure loses what it holds. A boundary, too: the job's hosts
    /// change here or at the next one.
    ///
    /// It copies the state into memory of the agent, and talks to nobody unless a part of the state does
    /// ([`State::agree`]). It blocks only while the driver asks
    /// all members for their common boundary, for a round trip.
    ///
    /// If the round ended while this worker was on its way here, the commit is made all the same, unless a call has said so
    /// before: the error behind it is the first to say it.
    ///
    /// # Errors
    /// [`Interrupt::HostsUpdated`](crate::Interrupt::HostsUpdated), and the commit is made; [`Interrupt::WorkersFailed`](crate::Interrupt::WorkersFailed), and it may be.
    /// [`Error::Save`] and [`Error::Commit`], and the commit before is the newest.
    pub fn commit(&mut self, state: &mut (impl State + ?Sized)) -> Result<CommitId, Error> {
        let id = self.seal(state)?;
        match self.worker.boundary()? {
            Boundary::Continue => Ok(id),
            Boundary::Leave => Err(self.worker.leave_at_commit()),
        }
    }

    /// A boundary without a commit: looks whether the hosts of the job change. Then all members stop at the
    /// same check (or commit), and it commits the state.
    ///
    /// A few nanoseconds and no system call while nothing changes.
    ///
    /// # Errors
    /// As [`Session::commit`].
    pub fn check_host_updates(&mut self, state: &mut (impl State + ?Sized)) -> Result<(), Error> {
        match self.worker.boundary()? {
            Boundary::Continue => Ok(()),
            Boundary::Leave => {
                self.seal(state)?;
                Err(self.worker.leave_at_commit())
            }
        }
    }

    /// Whether the host of some member may or will go away: a cloud recommends to move (EC2's rebalance recommendation),
    /// or has given notice. A script that does not commit every step should commit more often then.
    ///
    /// ```no_run
    /// # use elasticrun_worker::{Error, Session};
    /// # fn train(session: &mut Session<'_>, weights: &mut Vec<f32>, step: u64) -> Result<(), Error> {
    /// if step % 100 == 0 || session.at_risk()? {
    ///     session.commit(weights)?;
    /// } else {
    ///     session.check_host_updates(weights)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A collective of four bytes: all members call it at the same place and get the same answer, so all commit at the
    /// same steps. (In the line above all of them call it or none, since all are at the same step.)
    ///
    /// # Errors
    /// As [`Session::barrier`].
    pub fn at_risk(&mut self) -> Result<bool, Error> {
        let mut any = [u32::from(self.worker.host_at_risk())];
        self.allreduce(&mut any, Op::Max)?;
        Ok(any[0] != 0)
    }

    /// Waits until all members are here.
    ///
    /// # Errors
    /// [`Interrupt::WorkersFailed`](crate::Interrupt::WorkersFailed) if the round is over; [`Error::Collective`] if a member called something else.
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
        self.worker.check()?;
        operation(&mut self.group).map_err(|error| self.worker.failed(error))
    }

    fn seal(&mut self, state: &mut (impl State + ?Sized)) -> Result<CommitId, Error> {
        state.agree(self)?;
        let id = self.worker.seal(state)?;
        self.next.count = id.count + 1;
        state.committed()?;
        Ok(id)
    }

    /// The training function gave an error. `false` if it is its own: nothing has ended the round.
    pub(crate) fn leave(self) -> bool {
        // The last sign for peers of this round, before the first one of the next.
        drop(self.group);
        self.worker.leave(false)
    }

    /// The training function is done. The group stays until the process ends, since others may still read
    /// from it what they need to be done as well.
    pub(crate) fn finish(self) {
        self.worker.finish();
        std::mem::forget(self.group);
    }
}

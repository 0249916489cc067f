//! One round, from the view of the training function.

use elasticrun_collectives::{Element, Group, Op};
use elasticrun_protocol::CommitId;

use crate::{Error, State, Store, Worker, World, worker::Boundary};

/// A worker's access to a round: commits, boundaries and collectives.
///
/// Every call fails once the round is over, with the same error from then on. Return it from the
/// training function. All members make the same calls of collectives, commits and checks in the
/// same order.
#[derive(Debug)]
pub struct Session<'a> {
    worker: &'a mut Worker,
    world: World,
    group: Group,
    store: Store,
    /// The id of the next commit.
    next: CommitId,
}

impl<'a> Session<'a> {
    /// For a worker that has joined and synced.
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

    /// Rank of this worker, `0..size`.
    pub fn rank(&self) -> u32 {
        self.world.rank()
    }

    /// Number of workers of the round.
    pub fn size(&self) -> u32 {
        self.world.size()
    }

    /// Slot of this worker on its host.
    pub fn local_rank(&self) -> u32 {
        self.world.local_rank()
    }

    /// Number of workers of the round on this host.
    pub fn local_size(&self) -> u32 {
        self.world.local_size()
    }

    /// Index of this host among the hosts that have this `local_rank`.
    pub fn cross_rank(&self) -> u32 {
        self.world.cross_rank()
    }

    /// Number of hosts that have this `local_rank`.
    pub fn cross_size(&self) -> u32 {
        self.world.cross_size()
    }

    /// The keys of this round in the job's key-value store. The handle may be kept and used by
    /// other threads. Its calls fail once the round is over.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// The keys of the job in its key-value store. They stay from round to round.
    pub fn job_store(&self) -> Store {
        self.worker.job_store()
    }

    /// The id of the next commit.
    pub fn next_commit(&self) -> CommitId {
        self.next
    }

    /// Commits the state: from here on, no failure loses it. A commit is also a boundary, so the
    /// job's hosts may change here.
    ///
    /// It copies the state into memory of the agent. It sends no message unless a part of the state
    /// does ([`State::agree`]). It blocks only while the driver asks all members for their common
    /// boundary, for a round trip.
    ///
    /// If the round ended before this call, the commit is made all the same, and the error after it
    /// reports the end. If an earlier call has already reported the end, the commit is refused.
    ///
    /// # Errors
    /// [`Interrupt::HostsUpdated`](crate::Interrupt::HostsUpdated), and the commit is made.
    /// [`Interrupt::WorkersFailed`](crate::Interrupt::WorkersFailed), and the commit may be made.
    /// [`Error::Save`] and [`Error::Commit`], and the previous commit stays the newest.
    pub fn commit(&mut self, state: &mut (impl State + ?Sized)) -> Result<CommitId, Error> {
        let id = self.seal(state)?;
        match self.worker.boundary()? {
            Boundary::Continue => Ok(id),
            Boundary::Leave => Err(self.worker.leave_at_commit()),
        }
    }

    /// A boundary without a commit: checks whether the hosts of the job change. If they do, all
    /// members stop at the same check (or commit), and this call commits the state.
    ///
    /// It takes a few nanoseconds and no system call while nothing changes.
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

    /// Whether the host of a member may or will go away: its cloud recommends to move (EC2's
    /// rebalance recommendation) or has given notice. A script that does not commit every step should
    /// then commit more often.
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
    /// It is a collective of four bytes. All members call it at the same point and get the same answer,
    /// so all commit at the same steps. In the example, all members call it or none, since all are at
    /// the same step.
    ///
    /// # Errors
    /// As [`Session::barrier`].
    pub fn at_risk(&mut self) -> Result<bool, Error> {
        let mut any = [u32::from(self.worker.host_at_risk())];
        self.allreduce(&mut any, Op::Max)?;
        Ok(any[0] != 0)
    }

    /// Waits until all members have arrived.
    ///
    /// # Errors
    /// [`Interrupt::WorkersFailed`](crate::Interrupt::WorkersFailed) if the round is over;
    /// [`Error::Collective`] if a member called something else.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.run_collective(Group::barrier)
    }

    /// Combines the `data` of all members element by element, in place. All get the same bits.
    ///
    /// # Errors
    /// As [`Session::barrier`]; the contents of `data` are then undefined.
    pub fn allreduce<T: Element>(&mut self, data: &mut [T], op: Op) -> Result<(), Error> {
        self.run_collective(|group| group.allreduce(data, op))
    }

    /// Sends the `data` of rank `root` to all. All pass the same length.
    ///
    /// # Errors
    /// As [`Session::barrier`]; [`Error::Collective`] also if there is no rank `root`.
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: u32) -> Result<(), Error> {
        self.run_collective(|group| group.broadcast(data, root))
    }

    /// Sends the bytes of rank `root`, of any length, to all.
    ///
    /// # Errors
    /// As [`Session::broadcast`].
    pub fn broadcast_bytes(&mut self, data: &mut Vec<u8>, root: u32) -> Result<(), Error> {
        self.run_collective(|group| group.broadcast_bytes(data, root))
    }

    /// Sends the `input` elements of each member to all, in rank order. All pass the same length.
    ///
    /// # Errors
    /// As [`Session::barrier`].
    pub fn allgather<T: Element>(&mut self, input: &[T]) -> Result<Vec<T>, Error> {
        let mut all = vec![T::zeroed(); input.len() * self.size() as usize];
        self.run_collective(|group| group.allgather(input, &mut all))?;
        Ok(all)
    }

    /// Sends the `input` bytes of each member, of any length, to all, in rank order.
    ///
    /// # Errors
    /// As [`Session::barrier`].
    pub fn allgather_bytes(&mut self, input: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.run_collective(|group| group.allgatherv(input))
    }

    /// Combines the `input` of all members and gives each member one block of the result. `input`
    /// has a block of `output.len()` elements for each rank.
    ///
    /// # Errors
    /// As [`Session::barrier`]; [`Error::Collective`] also if the lengths do not fit.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: Op,
    ) -> Result<(), Error> {
        self.run_collective(|group| group.reduce_scatter(input, output, op))
    }

    fn run_collective<T>(
        &mut self,
        operation: impl FnOnce(&mut Group) -> Result<T, elasticrun_collectives::Error>,
    ) -> Result<T, Error> {
        self.worker.check()?;
        operation(&mut self.group).map_err(|error| self.worker.record_error(error))
    }

    fn seal(&mut self, state: &mut (impl State + ?Sized)) -> Result<CommitId, Error> {
        state.agree(self)?;
        let id = self.worker.seal(state)?;
        self.next.count = id.count + 1;
        state.committed()?;
        Ok(id)
    }

    /// Leaves the round after an error of the training function. Returns `false` if nothing has
    /// ended the round, so that the error is the function's own.
    pub(crate) fn leave(self) -> bool {
        // Its peers must receive the last data of this round before the first of the next.
        drop(self.group);
        self.worker.leave(false)
    }

    /// The training function is done. The group stays until the process ends, since others may
    /// still read data from it that they need to finish.
    pub(crate) fn finish(self) {
        self.worker.finish();
        std::mem::forget(self.group);
    }
}

//! A state that is divided among the workers: its base, commit 0 of a round, and commits of a shard.

use std::sync::Arc;

use elasticrun_collectives::Group;
use elasticrun_core::worker::Machine;
use elasticrun_protocol::{CommitId, CommitKey, Shard};
use elasticrun_shm::{Copying, commit::Place};

use super::Worker;
use crate::{
    Error, State,
    round::{DividedBase, Route, fetch_shard, open_divided},
};

/// A commit of a shard that is being written. It counts once it is sealed.
#[derive(Clone, Debug)]
#[must_use = "a commit counts once it is sealed"]
pub struct OpenShard {
    key: CommitKey,
    place: Place,
}

impl OpenShard {
    /// The commit.
    pub fn id(&self) -> CommitId {
        self.key.commit
    }

    /// Where its bytes are in the memory of this process, until the next commit is begun.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl Worker {
    /// [`SetupStep::LoadShards`](crate::SetupStep::LoadShards): opens the base of the round. `None` if the round has no base. All
    /// members take part. Call [`loaded_shards`](Self::loaded_shards) when the live state is
    /// made of it.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn load_shards(&mut self, group: &mut Group) -> Result<Option<DividedBase>, Error> {
        let active = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        let (inbox, memory) = (&self.agent.inbox, &mut self.agent.memory);
        let base = inbox.with_machine(|machine| machine.load_shards(memory))?;
        base.map(|id| open_divided(&self.agent, &active.started, group, id))
            .transpose()
    }

    /// Fetches parts of a shard of the base that another host holds: offsets and lengths in its bytes.
    /// Returns the parts, one after the other. Hosts that cannot pass them on are skipped.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn fetch_shard(
        &mut self,
        base: &DividedBase,
        route: Route<'_>,
        ranges: &[(u64, u64)],
    ) -> Result<Vec<u8>, Error> {
        let active = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        fetch_shard(&mut self.agent, &active.started, base, route, ranges)
    }

    /// The live state was made of the base of the round.
    pub fn loaded_shards(&mut self) {
        self.agent.inbox.with_machine(Machine::loaded_shards);
    }

    /// [`SetupStep::SealFirst`](crate::SetupStep::SealFirst): begins to write the shard of this process for commit 0 of the round. So it may be written
    /// before all members have compared what must be alike, and written again.
    ///
    /// # Errors
    /// As [`open_shard`](Self::open_shard).
    pub fn open_first_shard(
        &mut self,
        shard: Shard,
        head: &(impl State + ?Sized),
        len: usize,
    ) -> Result<OpenShard, Error> {
        let commit = (self.agent.inbox).with_machine(|machine| machine.first_commit())?;
        self.open(CommitKey { commit, shard }, head, len)
    }

    /// Seals what [`open_first_shard`](Self::open_first_shard) has begun, once members have compared it. When all have, call
    /// [`all_sealed`](Self::all_sealed).
    ///
    /// # Errors
    /// [`Error::Commit`] if another commit was begun since.
    pub fn seal_first_shard(&mut self, open: &OpenShard) -> Result<CommitId, Error> {
        self.agent.memory.seal_open(open.key)?;
        Ok(open.id())
    }

    /// The shard of the base that this process has sealed itself, if there is one, and its bytes. They are mapped already.
    pub fn own_shard(&self, base: &DividedBase) -> Option<(u32, &[u8])> {
        let (key, bytes) = self.agent.memory.shard(base.id())?;
        let index = key.shard.index;
        (key == base.key(index)).then_some((index, bytes))
    }

    /// All members have sealed their shards as commit 0 of the round.
    pub fn all_sealed(&mut self) {
        self.agent.inbox.with_machine(Machine::all_sealed);
    }

    /// Begins a commit of the shard of this process, of `len` bytes: those of `head` come first, and the caller writes the
    /// others to the memory that it gets. [`seal_shard`](Self::seal_shard) must follow before the next commit and before
    /// this process leaves its round; otherwise the commit is void. All members must have sealed the commit before: an
    /// earlier barrier of the round shows that, if none calls it with a commit that it has not sealed.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub fn open_shard(
        &mut self,
        shard: Shard,
        head: &(impl State + ?Sized),
        len: usize,
    ) -> Result<OpenShard, Error> {
        let active = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        let inbox = &self.agent.inbox;
        let commit = inbox.with_machine_in_round(active.started.id(), Machine::commit)?;
        active.boundaries.wait_until_leased();
        self.open(CommitKey { commit, shard }, head, len)
    }

    /// Seals a commit that [`open_shard`](Self::open_shard) has begun, once all of its bytes are written. Training may have
    /// gone on meanwhile, and the round may be over. With `must_be_whole` no operation of this process may have been cut short
    /// by now, as for [`seal`](Self::seal): the bytes were not final when the commit was begun.
    ///
    /// # Errors
    /// [`Error::OutOfRound`] outside of a round; [`Error::Commit`] if another commit was begun since; with `must_be_whole` an
    /// interrupt.
    pub fn seal_shard(&mut self, open: &OpenShard, must_be_whole: bool) -> Result<CommitId, Error> {
        let active = self.round.as_mut().ok_or(Error::NO_ROUND)?;
        active.boundaries.wait_until_leased();
        if must_be_whole {
            let inbox = &self.agent.inbox;
            inbox.with_machine_in_round(active.started.id(), Machine::commit)?;
        }
        self.agent.memory.seal_open(open.key)?;
        let id = open.id();
        self.agent.page.count_commit();
        (self.agent.inbox).with_machine(|machine| machine.committed(id));
        Ok(id)
    }

    /// The memory of an open commit stays where it is until this copy to it is done. The commit is not sealed before.
    pub fn await_copy(&mut self, open: &OpenShard, copying: Arc<Copying>) {
        self.agent.memory.await_copy(open.key, copying);
    }

    fn open(
        &mut self,
        key: CommitKey,
        head: &(impl State + ?Sized),
        len: usize,
    ) -> Result<OpenShard, Error> {
        let place = self.agent.memory.leave_open(key, |write| {
            write.reserve(len)?;
            head.save(write).map_err(Error::Save)?;
            let rest = len.saturating_sub(write.len());
            write.append(rest)?;
            Ok(())
        })?;
        Ok(OpenShard { key, place })
    }

    /// Provides memory for the next commit, of about `len` bytes, in a thread of its own.
    pub fn provide_for_commit(&mut self, len: usize) {
        self.agent.memory.provide(len);
    }

    /// Provides memory for commits of about `len` bytes, however many this process has at once, in threads of its own.
    pub fn provide_for_commits(&mut self, len: usize) {
        self.agent.memory.provide_in_all(len);
    }

    /// The bytes of memory that two commits of `len` bytes need beyond what this process has for commits.
    pub fn growth_of_commits(&self, len: usize) -> u64 {
        self.agent.memory.growth(len)
    }
}

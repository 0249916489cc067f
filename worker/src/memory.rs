//! The commits of this process, in memory that the agent owns.

use std::sync::Arc;

use elasticrun_core::worker::{Commits, Fingerprint};
use elasticrun_protocol::{CommitId, CommitKey, DriverEpoch, Round};
use elasticrun_shm::{
    Copying,
    commit::{CommitFds, CommitWrite, CommitWriter, Error as CommitError, OpenCommit, Place},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, State};

/// The format of the bytes of a whole state: those that [`State::save`] writes.
const WHOLE: u64 = 0;

/// The format of the bytes of a shard: a header, the layout, and the bytes of tensors.
const SHARD: u64 = 1;

/// Computes the value by which commits are compared.
pub(crate) fn fingerprint(bytes: &[u8]) -> Fingerprint {
    Fingerprint {
        len: bytes.len() as u64,
        digest: xxh3_64(bytes),
    }
}

/// A commit that is not sealed.
#[derive(Debug)]
struct Open {
    key: CommitKey,
    commit: OpenCommit,
    /// A copy to it, which ends before the memory is used for anything else.
    copying: Option<Arc<Copying>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(copying) = &self.copying {
            copying.wait();
        }
    }
}

/// The commit memory of this process, with the last computed fingerprint.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The part of a state that was written and not sealed. Before the writer, which owns the memory that it is copied to.
    open: Option<Open>,
    writer: CommitWriter,
    /// The last computed fingerprint. A round may fail, and its successor may have the same base.
    fingerprint: Option<(CommitId, Fingerprint)>,
    /// The bytes of the commits of all workers of a round beyond which two buffers of each must suffice.
    limit: Option<u64>,
}

impl Memory {
    pub(crate) fn open(fds: CommitFds, limit: Option<u64>) -> Result<Self, Error> {
        Ok(Self {
            open: None,
            writer: CommitWriter::open(fds)?,
            fingerprint: None,
            limit,
        })
    }

    /// Gives this process its share of the memory for commits in a round of `size` workers.
    pub(crate) fn share(&mut self, size: u32) {
        let share = self.limit.map(|limit| limit / u64::from(size.max(1)));
        self.writer.set_limit(share);
    }

    /// The bytes of memory that two commits of `len` bytes need beyond what this process has.
    pub(crate) fn growth(&self, len: usize) -> u64 {
        self.writer.growth(len)
    }

    /// The newest complete commit.
    pub(crate) fn newest(&self) -> Option<CommitId> {
        match self.writer.newest() {
            Ok(info) => info.map(|info| info.id),
            Err(error) => {
                tracing::warn!(%error, "the commits of this process cannot be read");
                None
            }
        }
    }

    /// Whether the newest commit holds no bytes.
    pub(crate) fn newest_is_empty(&self) -> bool {
        (self.newest()).is_some_and(|id| self.bytes(id).is_ok_and(<[u8]>::is_empty))
    }

    pub(crate) fn bytes(&self, id: CommitId) -> Result<&[u8], Error> {
        Ok(self.writer.read(id)?.1)
    }

    /// The fingerprint of a commit, if this process holds it.
    pub(crate) fn fingerprint(&mut self, id: CommitId) -> Option<Fingerprint> {
        if let Some((known, fingerprint)) = self.fingerprint
            && known == id
        {
            return Some(fingerprint);
        }
        let fingerprint = fingerprint(self.bytes(id).ok()?);
        self.fingerprint = Some((id, fingerprint));
        Some(fingerprint)
    }

    /// Commits a state.
    pub(crate) fn save(
        &mut self,
        id: CommitId,
        state: &(impl State + ?Sized),
    ) -> Result<(), Error> {
        self.write(id, |write| state.save(write).map_err(Error::Save))
    }

    /// Commits what `fill` writes. If `fill` fails, there is no new commit and the newest one
    /// stays.
    pub(crate) fn write(
        &mut self,
        id: CommitId,
        fill: impl FnOnce(&mut CommitWrite<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let key = id.into();
        self.leave_open(key, fill)?;
        self.seal_open(key)
    }

    /// As [`write`](Self::write), for a part of a state, and but for the seal: the newest commit is still the one before. Gives
    /// the place of the bytes, where they may be written until the seal.
    pub(crate) fn leave_open(
        &mut self,
        key: CommitKey,
        fill: impl FnOnce(&mut CommitWrite<'_>) -> Result<(), Error>,
    ) -> Result<Place, Error> {
        let version = match key.shard.is_whole() {
            true => WHOLE,
            false => SHARD,
        };
        self.open = None;
        let mut write = self.writer.begin(key.commit, version)?;
        write.set_shard(key.shard);
        fill(&mut write)?;
        let commit = write.leave_open();
        self.open = Some(Open {
            key,
            commit,
            copying: None,
        });
        Ok(self.writer.place(&commit))
    }

    /// Takes note of a copy to an open commit.
    pub(crate) fn await_copy(&mut self, key: CommitKey, copying: Arc<Copying>) {
        match &mut self.open {
            Some(open) if open.key == key => open.copying = Some(copying),
            // Its memory may be used for something else now.
            _ => copying.wait(),
        }
    }

    /// Seals what [`leave_open`](Self::leave_open) has written for this key.
    pub(crate) fn seal_open(&mut self, key: CommitKey) -> Result<(), Error> {
        let open = self.open.take_if(|open| open.key == key);
        let open = open.ok_or(CommitError::Gone { id: key.commit })?;
        let commit = open.commit;
        drop(open);
        self.writer.seal(commit)?;
        Ok(())
    }

    /// Provides memory for the next commit, of about `len` bytes, in a thread of its own, as far as there is enough.
    pub(crate) fn provide(&mut self, len: usize) {
        self.open = None;
        if let Err(error) = self.writer.provide(len) {
            tracing::debug!(%error, "no memory is provided ahead of a commit");
        }
    }

    /// The same for all commits of this process.
    pub(crate) fn provide_in_all(&mut self, len: usize) {
        self.open = None;
        if let Err(error) = self.writer.provide_in_all(len) {
            tracing::debug!(%error, "no memory is provided ahead of the commits of a later round");
        }
    }

    /// A commit of this process: which part of the state it is, and its bytes.
    pub(crate) fn shard(&self, id: CommitId) -> Option<(CommitKey, &[u8])> {
        let (info, bytes) = self.writer.read(id).ok()?;
        Some((info.key(), bytes))
    }

    /// The fingerprint may belong to a discarded commit, whose id may be used again for other
    /// bytes.
    fn forget_fingerprint(&mut self) {
        if let Some((id, _)) = self.fingerprint
            && !self.holds(id)
        {
            self.fingerprint = None;
        }
    }
}

impl Commits for Memory {
    fn holds(&self, id: CommitId) -> bool {
        self.writer.read(id).is_ok()
    }

    fn discard_newer(&mut self, base: Option<CommitId>) {
        self.open = None;
        self.forget_fingerprint();
        self.writer.discard_newer(base.unwrap_or(OLDEST));
    }

    fn discard(&mut self, id: CommitId) {
        self.fingerprint = None;
        self.writer.discard_newer(before(id));
    }
}

/// Older than all commits: round numbers start at 1.
const OLDEST: CommitId = CommitId {
    epoch: DriverEpoch(0),
    round: Round(0),
    count: 0,
};

/// The largest smaller id.
fn before(id: CommitId) -> CommitId {
    let CommitId {
        epoch,
        round,
        count,
    } = id;
    match (count, round.0, epoch.0) {
        (1.., ..) => CommitId {
            count: count - 1,
            ..id
        },
        (0, 1.., _) => CommitId {
            epoch,
            round: Round(round.0 - 1),
            count: u64::MAX,
        },
        (0, 0, 1..) => CommitId {
            epoch: DriverEpoch(epoch.0 - 1),
            round: Round(u64::MAX),
            count: u64::MAX,
        },
        (0, 0, 0) => id,
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_shm::commit::CommitMemory;

    use super::*;

    fn id(round: u64, count: u64) -> CommitId {
        CommitId {
            epoch: DriverEpoch(1),
            round: Round(round),
            count,
        }
    }

    fn memory() -> Memory {
        limited(None)
    }

    fn limited(limit: Option<u64>) -> Memory {
        let memory = CommitMemory::create().unwrap();
        let fds = memory.fds(3).into_iter();
        Memory::open(
            fds.map(|fd| fd.try_clone_to_owned().unwrap()).collect(),
            limit,
        )
        .unwrap()
    }

    #[test]
    fn before_is_smaller_and_leaves_no_gap() {
        for id in [id(1, 7), id(1, 0), id(0, 0)] {
            assert!(before(id) < id);
        }
        assert_eq!(before(id(1, 7)), id(1, 6));
        assert_eq!(before(OLDEST), OLDEST);
    }

    #[test]
    fn a_commit_that_is_written_again_has_a_new_fingerprint() {
        let mut memory = memory();
        memory.save(id(1, 1), &1_u64).unwrap();
        let first = memory.fingerprint(id(1, 1)).unwrap();
        memory.discard(id(1, 1));
        assert_eq!(memory.fingerprint(id(1, 1)), None);
        memory.save(id(1, 1), &2_u64).unwrap();
        assert_ne!(memory.fingerprint(id(1, 1)).unwrap(), first);
        assert_eq!(
            memory.fingerprint(id(1, 1)).unwrap(),
            fingerprint(&2_u64.to_le_bytes())
        );
    }

    #[test]
    fn the_memory_of_a_job_is_shared_by_the_workers_of_a_round() {
        let mut memory = limited(Some(4_000_000));
        let state = vec![1_u8; 600_000];
        memory.share(2);
        memory.save(id(1, 1), &state).unwrap();
        memory.save(id(1, 2), &state).unwrap();
        // Newcomers make the share too small for two commits. No worker fails by that, neither of the old ones nor of
        // the newcomers at their first commit.
        memory.share(8);
        memory.save(id(1, 3), &vec![1_u8; 1_200_000]).unwrap();
        assert_eq!(memory.newest(), Some(id(1, 3)));
        let mut newcomer = limited(Some(4_000_000));
        newcomer.share(8);
        newcomer.save(id(1, 3), &state).unwrap();
        assert_eq!(newcomer.newest(), Some(id(1, 3)));
    }

    #[test]
    fn what_is_void_is_gone_and_the_base_stays() {
        let mut memory = memory();
        memory.save(id(1, 1), &1_u64).unwrap();
        memory.save(id(1, 2), &2_u64).unwrap();
        memory.discard_newer(Some(id(1, 1)));
        assert_eq!(memory.newest(), Some(id(1, 1)));
        memory.discard_newer(None);
        assert_eq!(memory.newest(), None);
    }
}

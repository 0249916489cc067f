//! Writing commits, on the worker's side.

use elasticrun_protocol::{CommitId, Shard};

use super::{
    CommitFds, Error,
    buffer::Buffer,
    layout::{BODY, Info, MAX_BUFFERS, PINNABLE},
    search::{Search, Step, choose},
    states::{States, find, newest, read_states},
    write::{BufferPlace, CommitWrite, OpenCommit, Place},
};
use crate::memfd::{self, PAGE};

/// How often a commit looks again for a buffer that is not pinned. Only a pin that moves at the same time makes it look
/// again.
const MAX_AGAIN: u16 = 1000;

/// Writes the commits of this process. A commit memory has one writer.
#[derive(Debug)]
pub struct CommitWriter {
    /// Two to four. Those beyond two are used only while others are pinned or kept.
    pub(super) buffers: Vec<Buffer>,
    /// The bytes of all buffers together beyond which two buffers must suffice.
    limit: Option<u64>,
    has_warned: bool,
    /// The number of commits that were begun.
    pub(super) begun: u64,
}

impl CommitWriter {
    /// Maps the memory that the agent created. Existing commits stay.
    pub fn open(fds: CommitFds) -> Result<Self, Error> {
        if !(2..=MAX_BUFFERS).contains(&fds.len()) {
            return Err(Error::Buffers { count: fds.len() });
        }
        let buffers = fds
            .into_iter()
            .map(Buffer::open)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            buffers,
            limit: None,
            has_warned: false,
            begun: 0,
        })
    }

    /// Sets the bytes of all buffers together beyond which a third buffer is not used. A worker needs two buffers, so it
    /// has them also beyond the limit, and no commit fails by it. Existing commits stay.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    fn read_states(&self) -> Result<States, Error> {
        read_states(
            self.buffers
                .iter()
                .map(|buffer| (buffer.header(), &buffer.fd)),
        )
    }

    /// The newest complete commit.
    pub fn newest(&self) -> Result<Option<Info>, Error> {
        Ok(newest(&self.read_states()?).map(|(_, info)| info))
    }

    /// The bytes of a complete commit, to restore from.
    pub fn read(&self, id: CommitId) -> Result<(Info, &[u8]), Error> {
        let seen = self.read_states()?;
        let (buffer, _, info) = find(&seen, id).ok_or(Error::Gone { id })?;
        let buffer = &self.buffers[buffer];
        let len = usize::try_from(info.len).map_err(|_| Error::Gone { id })?;
        if buffer.mapping.len() < BODY + len {
            return Err(Error::Gone { id });
        }
        // SAFETY: within the mapping; only this writer writes there, and it is borrowed meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.mapping.as_ptr().add(BODY), len) };
        Ok((info, bytes))
    }

    /// Allocates two buffers for commits of `len` bytes, so that the first two commits do not have to. It takes about
    /// 0.4 s for each GiB and buffer, and ten times that if a hypervisor must provide the memory first.
    ///
    /// On error, commits are unchanged, and a commit that fits can still be made.
    pub fn reserve(&mut self, len: usize) -> Result<(), Error> {
        for buffer in 0..2 {
            self.ensure_allocated(buffer, len)?;
        }
        Ok(())
    }

    /// Provides memory for the next commit, of about `len` bytes, in a thread of its own. The commit then finds it. It stops if
    /// the system has less left than four times of what is missing: two commits and the state itself need memory, and the
    /// processes of a host do this at once.
    ///
    /// # Errors
    /// Nothing is provided. Commits are unchanged.
    pub fn provide(&mut self, len: usize) -> Result<(), Error> {
        let is_over = |target: usize| {
            let all = self.allocated_by_others(target).saturating_add(len as u64);
            self.limit.is_some_and(|limit| all > limit)
        };
        match self.next_target().filter(|target| !is_over(*target)) {
            Some(target) => self.buffers[target].provide(len),
            None => Ok(()),
        }
    }

    /// The same for each buffer with a commit and that of the next one: any of them may be the next one of a later round. Complete
    /// commits stay. Provides nothing if there is a limit, which leaves memory for commits that are pinned or kept.
    ///
    /// # Errors
    /// As for [`provide`](Self::provide).
    pub fn provide_in_all(&mut self, len: usize) -> Result<(), Error> {
        if self.limit.is_some() {
            return Ok(());
        }
        let next = self.next_target();
        for (index, buffer) in self.buffers.iter_mut().enumerate() {
            if Some(index) == next || buffer.allocated > PAGE {
                buffer.provide(len)?;
            }
        }
        Ok(())
    }

    /// The buffer that the next commit takes, as it is now.
    fn next_target(&self) -> Option<usize> {
        let newest = self.newest_or_none().map(|(buffer, _)| buffer);
        let is_held =
            |buffer: usize| self.buffers[buffer].header().is_pinned() || self.is_kept(buffer);
        choose(self.buffers.len(), newest, is_held)
    }

    /// The bytes of memory that two commits of `len` bytes need beyond what this process has for commits.
    pub fn growth(&self, len: usize) -> u64 {
        let pages = |buffer: &Buffer| {
            let provided = memfd::allocated(&buffer.fd).unwrap_or(0);
            (buffer.allocated).max(usize::try_from(provided).unwrap_or(0))
        };
        let mut allocated: Vec<_> = self.buffers.iter().map(pages).collect();
        allocated.sort_unstable();
        let need = len.saturating_add(BODY);
        let missing = allocated.iter().rev().take(2);
        missing
            .map(|allocated| need.saturating_sub(*allocated) as u64)
            .sum()
    }

    /// Begins a commit, in a buffer that neither holds the newest one nor is pinned. `state_version` is the version of the
    /// format of the bytes.
    ///
    /// If the returned value is dropped without [`CommitWrite::seal`], or the process dies, the newest commit is the one
    /// before.
    pub fn begin(&mut self, id: CommitId, state_version: u64) -> Result<CommitWrite<'_>, Error> {
        let newest = self.newest_or_none();
        if let Some((_, info)) = newest
            && id <= info.id
        {
            return Err(Error::NotNewer {
                id,
                newest: info.id,
            });
        }
        let target = self.open_buffer(newest.map(|(buffer, _)| buffer));
        self.drop_unneeded(target);
        self.begun += 1;
        Ok(CommitWrite {
            writer: self,
            target,
            info: Info {
                id,
                shard: Shard::default(),
                len: 0,
                state_version,
                digest: None,
            },
            len: 0,
        })
    }

    /// Opens the buffer of the next commit.
    fn open_buffer(&self, newest: Option<usize>) -> usize {
        if self.buffers.len() < PINNABLE {
            // An agent pins only if there are three.
            let target = choose(self.buffers.len(), newest, |_| false).unwrap_or(0);
            self.buffers[target].header().open();
            return target;
        }
        let mut kept = [false; MAX_BUFFERS];
        for (buffer, kept) in kept.iter_mut().enumerate().take(self.buffers.len()) {
            *kept = self.is_kept(buffer);
        }
        let mut search = Search::new(self.buffers.len(), kept, MAX_AGAIN);
        loop {
            match search.next(newest) {
                Step::Try(target) if self.buffers[target].header().open_unless_pinned() => {
                    return target;
                }
                Step::Try(target) => search.refuse(target),
                Step::Again => std::thread::yield_now(),
                Step::Force(target) => {
                    self.buffers[target].header().open_despite_pins();
                    tracing::warn!(
                        "more commits are pinned or kept than this worker has memory for, one of them is overwritten"
                    );
                    return target;
                }
            }
        }
    }

    /// Whether the commit of a buffer is one that the agent wants to keep.
    fn is_kept(&self, buffer: usize) -> bool {
        let first = self.buffers[0].header();
        if !first.keeps_any() {
            return false;
        }
        let Ok(seen) = self.read_states() else {
            return false;
        };
        seen[buffer].info.is_some_and(|info| first.keeps(info.id))
    }

    /// Gives the newest commit a newer id without touching its bytes. A worker that holds the base does so at the start of
    /// a round, which is commit 0 of the round. At any instant one of the two ids exists.
    pub fn rename_newest(&mut self, id: CommitId) -> Result<(), Error> {
        let (buffer, info) = newest(&self.read_states()?).ok_or(Error::Gone { id })?;
        if id <= info.id {
            return Err(Error::NotNewer {
                id,
                newest: info.id,
            });
        }
        self.buffers[buffer].header().close(&Info { id, ..info });
        Ok(())
    }

    /// Where the bytes of an open commit are.
    pub fn place(&self, open: &OpenCommit) -> Place {
        let buffer = &self.buffers[open.target];
        let start = buffer.mapping.as_ptr().expose_provenance();
        Place {
            address: start + BODY,
            len: usize::try_from(open.info.len).unwrap_or_default(),
            buffer: BufferPlace {
                index: open.target,
                address: start,
                allocated: buffer.allocated,
                version: buffer.version,
            },
        }
    }

    /// Seals a commit that was left open. It is the newest then.
    ///
    /// # Errors
    /// [`Error::Gone`] if another one was begun since.
    pub fn seal(&mut self, open: OpenCommit) -> Result<Info, Error> {
        let id = open.info.id;
        if open.number != self.begun {
            return Err(Error::Gone { id });
        }
        if let Some((_, Info { id: newest, .. })) = self.newest_or_none()
            && id <= newest
        {
            return Err(Error::NotNewer { id, newest });
        }
        self.buffers[open.target].header().close(&open.info);
        self.begun += 1;
        Ok(open.info)
    }

    /// Discards commits newer than the base of a round that has started, since they are void. The next commit goes to
    /// their buffer. The base, if it is in this memory, is the newest commit until the next one is sealed.
    pub fn discard_newer(&mut self, base: CommitId) {
        let Ok(seen) = self.read_states() else {
            return;
        };
        for (seen, buffer) in seen.iter().zip(&self.buffers) {
            if seen.info.is_some_and(|info| info.id > base) {
                buffer.header().open();
            }
        }
    }

    /// The newest commit; none if the headers are damaged, so that a new commit overwrites them.
    fn newest_or_none(&self) -> Option<(usize, Info)> {
        self.read_states().ok().as_ref().and_then(newest)
    }

    /// Frees buffers that are not needed if all together have more than the limit, which may have become smaller.
    fn drop_unneeded(&mut self, target: usize) {
        let is_over = |writer: &Self| {
            let all = writer.allocated_by_others(target) + writer.buffers[target].allocated as u64;
            writer.limit.is_some_and(|limit| all > limit)
        };
        while is_over(self)
            && let Some(unused) = self.unused(target)
        {
            if let Err(error) = self.buffers[unused].free() {
                tracing::debug!(%error, "the memory of a third commit cannot be given back");
                return;
            }
        }
    }

    /// Allocates memory for a body of `len` bytes. Existing bytes of the buffer stay, also on error.
    #[cold]
    pub(super) fn ensure_allocated(&mut self, target: usize, len: usize) -> Result<(), Error> {
        let spare = match self.limit {
            None => usize::MAX,
            Some(limit) => self.make_room(target, len, limit)?,
        };
        self.buffers[target].ensure_allocated(len, spare)
    }

    /// The bytes that the target may have, at least those for a body of `len`. Frees a buffer that is not needed if all
    /// together would have more than the limit.
    fn make_room(&mut self, target: usize, len: usize, limit: u64) -> Result<usize, Error> {
        let need = len.saturating_add(BODY);
        let is_over = |others: u64| others.saturating_add(need as u64) > limit;
        while is_over(self.allocated_by_others(target))
            && let Some(unused) = self.unused(target)
        {
            self.buffers[unused].free()?;
        }
        let others = self.allocated_by_others(target);
        if is_over(others) && !std::mem::replace(&mut self.has_warned, true) {
            let need = others.saturating_add(need as u64);
            tracing::warn!(
                need,
                share = limit,
                "two commits of this worker need more bytes than its share of --commit-memory, and stay in memory"
            );
        }
        let spare = limit.saturating_sub(others);
        Ok(usize::try_from(spare).unwrap_or(usize::MAX).max(need))
    }

    /// The pinned or kept buffer that a commit of `len` bytes must take in place of the target, because three buffers of that
    /// size would have more bytes than the limit. Without a limit, or if two buffers are too large by themselves, none.
    pub(super) fn instead_of_third(&self, target: usize, len: usize) -> Option<usize> {
        let need = len.saturating_add(BODY) as u64;
        let others = self.allocated_by_others(target);
        if others.saturating_add(need) <= self.limit? || self.buffers.len() < PINNABLE {
            return None;
        }
        let second = self.second(target);
        let is_held = |buffer: &usize| {
            *buffer != second
                && *buffer != target
                && self.buffers[*buffer].allocated > PAGE
                && (self.buffers[*buffer].header().is_pinned() || self.is_kept(*buffer))
        };
        (0..self.buffers.len()).find(is_held)
    }

    /// The buffer that a worker needs beside the target: that of the newest commit, or the first one if there is none.
    fn second(&self, target: usize) -> usize {
        let newest = self.newest_or_none().map(|(buffer, _)| buffer);
        newest
            .filter(|newest| *newest != target)
            .unwrap_or(usize::from(target == 0))
    }

    fn allocated_by_others(&self, target: usize) -> u64 {
        let others = self
            .buffers
            .iter()
            .enumerate()
            .filter(|(buffer, _)| *buffer != target);
        others.map(|(_, buffer)| buffer.allocated as u64).sum()
    }

    /// A buffer that a commit to the target can do without: neither the second one nor pinned nor kept. Its commit, if it
    /// has one, is gone then.
    fn unused(&self, target: usize) -> Option<usize> {
        if self.buffers.len() < PINNABLE {
            return None;
        }
        let second = self.second(target);
        let unused = |buffer: &usize| {
            *buffer != second
                && *buffer != target
                && self.buffers[*buffer].allocated > PAGE
                && !self.is_kept(*buffer)
                && self.buffers[*buffer].header().open_unless_pinned()
        };
        (0..self.buffers.len()).find(unused)
    }
}

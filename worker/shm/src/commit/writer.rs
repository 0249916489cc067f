//! Writing commits, on the worker's side.

use std::{
    io::{self, Write},
    os::fd::OwnedFd,
};

use elasticrun_protocol::{CommitId, Shard};

use super::{
    CommitFds, Error,
    layout::{BODY, Header, Info, MAX_BUFFERS},
    search::{Search, Step, choose},
    states::{States, find, newest, read_states},
};
use crate::memfd::{self, Mapping, PAGE};

/// The unit in which files grow.
const GROWTH_STEP: usize = 2 << 20;

/// The limit of the memory that is allocated ahead, which is an eighth of the need.
const MAX_AHEAD: usize = 16 << 20;

/// How often a commit looks again for a buffer that is not pinned. Only a pin that moves at the same time makes it look
/// again.
const MAX_AGAIN: u16 = 1000;

/// Writes the commits of this process. A commit memory has one writer.
#[derive(Debug)]
pub struct CommitWriter {
    /// Two or three. The third is used only while another one is pinned.
    buffers: Vec<Buffer>,
    /// The most bytes that all buffers together may have.
    limit: Option<u64>,
}

#[derive(Debug)]
struct Buffer {
    fd: OwnedFd,
    mapping: Mapping,
    /// Bytes from the start that are mapped and allocated, so that a write there cannot fail.
    allocated: usize,
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
        })
    }

    /// Limits the bytes of all buffers together. Existing commits stay, also beyond the limit.
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
        if self.buffers.len() < MAX_BUFFERS {
            // An agent pins only if there are three.
            let target = choose(self.buffers.len(), newest, |_| false).unwrap_or(0);
            self.buffers[target].header().open();
            return target;
        }
        let mut search = Search::new(MAX_AGAIN);
        loop {
            match search.next(newest) {
                Step::Try(target) if self.buffers[target].header().open_unless_pinned() => {
                    return target;
                }
                Step::Try(target) => search.refuse(target),
                Step::Again => std::thread::yield_now(),
                Step::Force(target) => {
                    self.buffers[target].header().open_despite_pins();
                    tracing::warn!("more than one commit is pinned, one of them is overwritten");
                    return target;
                }
            }
        }
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

    /// Allocates memory for a body of `len` bytes. Existing bytes of the buffer stay, also on error.
    #[cold]
    fn ensure_allocated(&mut self, target: usize, len: usize) -> Result<(), Error> {
        let spare = match self.limit {
            None => usize::MAX,
            Some(limit) => self.make_room(target, len, limit)?,
        };
        self.buffers[target].ensure_allocated(len, spare)
    }

    /// The bytes that the target may have, at least for a body of `len`. Frees a buffer that is not needed if there would
    /// be too few.
    fn make_room(&mut self, target: usize, len: usize, limit: u64) -> Result<usize, Error> {
        let need = len.saturating_add(BODY) as u64;
        let mut others = self.allocated_by_others(target);
        if others + need > limit
            && let Some(unused) = self.unused(target)
        {
            self.buffers[unused].free()?;
            others = self.allocated_by_others(target);
        }
        let spare = limit.saturating_sub(others);
        if need > spare {
            let need = others + need;
            return Err(Error::OverLimit { need, limit });
        }
        Ok(usize::try_from(spare).unwrap_or(usize::MAX))
    }

    fn allocated_by_others(&self, target: usize) -> u64 {
        let others = self
            .buffers
            .iter()
            .enumerate()
            .filter(|(buffer, _)| *buffer != target);
        others.map(|(_, buffer)| buffer.allocated as u64).sum()
    }

    /// A buffer that a commit to the target can do without: it holds neither the newest commit nor a pinned one. Its
    /// commit, if it has one, is gone then.
    fn unused(&self, target: usize) -> Option<usize> {
        if self.buffers.len() < MAX_BUFFERS {
            return None;
        }
        let newest = self.newest_or_none().map(|(buffer, _)| buffer);
        let unused = |buffer: &usize| {
            Some(*buffer) != newest
                && *buffer != target
                && self.buffers[*buffer].allocated > PAGE
                && self.buffers[*buffer].header().open_unless_pinned()
        };
        (0..self.buffers.len()).find(unused)
    }
}

impl Buffer {
    fn open(fd: OwnedFd) -> Result<Self, Error> {
        let len = memfd::len(&fd).unwrap_or(0).max(PAGE as u64);
        let len = usize::try_from(len).unwrap_or(PAGE);
        let mapping = Mapping::new(&fd, len)?;
        Header::in_mapping(&mapping).validate()?;
        Ok(Self {
            fd,
            mapping,
            allocated: PAGE,
        })
    }

    fn header(&self) -> &Header {
        Header::in_mapping(&self.mapping)
    }

    /// Allocates memory for a body of `len` bytes, and at most `max` bytes in all. Existing bytes stay, also on error.
    fn ensure_allocated(&mut self, len: usize, max: usize) -> Result<(), Error> {
        let too_long = || memfd::Error::Grow {
            len: len as u64,
            source: io::ErrorKind::FileTooLarge.into(),
        };
        let need = BODY.checked_add(len).ok_or_else(too_long)?;
        if need <= self.allocated {
            return Ok(());
        }
        if need > self.mapping.len() {
            let ample = (need + need / 8).max(2 * self.mapping.len());
            let ample = ample
                .checked_next_multiple_of(GROWTH_STEP)
                .ok_or_else(too_long)?;
            // Memory beyond the need costs address space only. If that is limited, map the need only.
            if self.extend(ample).is_err() {
                self.extend(need)?;
            }
        }
        let ahead = need + (need / 8).min(MAX_AHEAD);
        let ahead = ahead.next_multiple_of(PAGE).min(self.mapping.len());
        let ahead = ahead.min(max).max(need);
        self.allocated = match self.allocate(ahead) {
            Ok(()) => ahead,
            Err(_) => self.allocate(need).map(|()| need)?,
        };
        Ok(())
    }

    /// Gives the memory of an open buffer back to the system. Its address space stays.
    fn free(&mut self) -> Result<(), Error> {
        self.mapping.free(BODY..self.allocated)?;
        self.allocated = PAGE;
        Ok(())
    }

    fn extend(&mut self, len: usize) -> Result<(), memfd::Error> {
        memfd::grow(&self.fd, len as u64)?;
        self.mapping.extend(&self.fd, len)
    }

    fn allocate(&self, end: usize) -> Result<(), memfd::Error> {
        self.mapping
            .populate(&self.fd, self.allocated..end)
            .map_err(|source| memfd::Error::Grow {
                len: end as u64,
                source,
            })
    }

    /// The bytes of the body in an allocated range.
    fn body(&mut self, from: usize, len: usize) -> &mut [u8] {
        debug_assert!(BODY + from + len <= self.allocated);
        // SAFETY: allocated bytes are mapped; the buffer is open, so that no reader takes them for a commit, and the
        // exclusive borrow excludes other uses in this process.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr().add(BODY + from), len) }
    }
}

/// A commit that is being written: `write` to it, or fill the bytes of [`CommitWrite::append`], then call
/// [`CommitWrite::seal`].
#[derive(Debug)]
#[must_use = "a commit counts once it is sealed"]
pub struct CommitWrite<'a> {
    writer: &'a mut CommitWriter,
    target: usize,
    info: Info,
    len: usize,
}

impl CommitWrite<'_> {
    /// Allocates memory for `len` more bytes, if their number is known in advance.
    pub fn reserve(&mut self, len: usize) -> Result<(), Error> {
        let end = self.len.saturating_add(len);
        if end > self.buffer().allocated - BODY {
            self.writer.ensure_allocated(self.target, end)?;
        }
        Ok(())
    }

    /// Names the part of the state that the commit is. Without a call, it is the only one.
    pub fn set_shard(&mut self, shard: Shard) {
        self.info.shard = shard;
    }

    /// Appends `len` bytes for the caller to fill. They hold bytes of older commits before.
    pub fn append(&mut self, len: usize) -> Result<&mut [u8], Error> {
        let from = self.len;
        self.reserve(len)?;
        self.len = from + len;
        Ok(self.writer.buffers[self.target].body(from, len))
    }

    fn buffer(&self) -> &Buffer {
        &self.writer.buffers[self.target]
    }

    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the commit has no bytes yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes so far, for a digest.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as in `Buffer::body`, and shared.
        unsafe { std::slice::from_raw_parts(self.buffer().mapping.as_ptr().add(BODY), self.len) }
    }

    /// Completes the commit. From now on it is the newest.
    pub fn seal(mut self, digest: Option<u64>) -> Info {
        self.info.len = self.len as u64;
        self.info.digest = digest;
        self.buffer().header().close(&self.info);
        self.info
    }
}

impl Write for CommitWrite<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes.len())
            .map_err(io::Error::other)?
            .copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

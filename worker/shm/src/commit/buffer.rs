//! One buffer as the worker has it: its memory, which grows.

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::mm::{Advice, madvise};

use super::{
    Error,
    layout::{BODY, Header},
};
use crate::{
    ahead::Ahead,
    available_memory,
    memfd::{self, Mapping, PAGE},
};

/// The unit in which files grow.
const GROWTH_STEP: usize = 2 << 20;

/// The limit of the memory that is allocated ahead, which is an eighth of the need.
const MAX_AHEAD: usize = 16 << 20;

/// Bytes that are allocated at once ahead of need.
const AHEAD_STEP: usize = 4 << 20;

/// Bytes between two looks at what the system has left.
const AHEAD_LOOK: usize = 16 * AHEAD_STEP;

#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) fd: OwnedFd,
    pub(super) mapping: Mapping,
    /// Bytes from the start that are mapped and allocated, so that a write there cannot fail.
    pub(super) allocated: usize,
    /// How often pages were moved or given back.
    pub(super) version: u64,
    /// A thread that allocates memory ahead of need, and gives the end of what is allocated. It ends before the mapping changes.
    ahead: Option<Ahead<usize>>,
}

/// The start of a mapping, for the thread that allocates its pages.
struct Start(*mut u8);

// SAFETY: the mapping outlives the thread, which reads and writes no byte of it.
unsafe impl Send for Start {}

impl Start {
    /// Allocates pages from an offset to another one, in steps. Returns the end of those that are there.
    fn allocate(&self, from: usize, end: usize, stopped: &AtomicBool) -> usize {
        for pos in (from..end).step_by(AHEAD_STEP) {
            let is_scarce = || available_memory().is_some_and(|left| left / 4 < (end - pos) as u64);
            if stopped.load(Ordering::Relaxed)
                || ((pos - from).is_multiple_of(AHEAD_LOOK) && is_scarce())
            {
                return pos;
            }
            let len = AHEAD_STEP.min(end - pos);
            // SAFETY: within the mapping, as the buffer promises; populating changes no byte.
            let populated =
                unsafe { madvise(self.0.add(pos).cast(), len, Advice::LinuxPopulateWrite) };
            if populated.is_err() {
                return pos;
            }
        }
        end
    }
}

/// What is allocated for a need: later commits may be a little longer.
fn with_margin(need: usize) -> usize {
    (need.saturating_add((need / 8).min(MAX_AHEAD))).next_multiple_of(PAGE)
}

impl Buffer {
    pub(super) fn open(fd: OwnedFd) -> Result<Self, Error> {
        let len = memfd::len(&fd).unwrap_or(0).max(PAGE as u64);
        let len = usize::try_from(len).unwrap_or(PAGE);
        let mapping = Mapping::new(&fd, len)?;
        Header::in_mapping(&mapping).validate()?;
        Ok(Self {
            fd,
            mapping,
            allocated: PAGE,
            version: 0,
            ahead: None,
        })
    }

    pub(super) fn header(&self) -> &Header {
        Header::in_mapping(&self.mapping)
    }

    /// Allocates memory for a body of `len` bytes, and at most `max` bytes in all. Existing bytes stay, also on error.
    pub(super) fn ensure_allocated(&mut self, len: usize, max: usize) -> Result<(), Error> {
        let too_long = || memfd::Error::Grow {
            len: len as u64,
            source: io::ErrorKind::FileTooLarge.into(),
        };
        let need = BODY.checked_add(len).ok_or_else(too_long)?;
        if need <= self.allocated {
            return Ok(());
        }
        self.settle();
        if need <= self.allocated {
            return Ok(());
        }
        self.ensure_mapped(need)?;
        let ahead = with_margin(need).min(self.mapping.len());
        let ahead = ahead.min(max).max(need);
        self.allocated = match self.allocate(ahead) {
            Ok(()) => ahead,
            Err(_) => self.allocate(need).map(|()| need)?,
        };
        Ok(())
    }

    /// Maps at least `need` bytes.
    fn ensure_mapped(&mut self, need: usize) -> Result<(), memfd::Error> {
        if need <= self.mapping.len() {
            return Ok(());
        }
        let ample = (need + need / 8).max(2 * self.mapping.len());
        let ample = ample.next_multiple_of(GROWTH_STEP);
        // Memory beyond the need costs address space only. If that is limited, map the need only.
        self.extend(ample).or_else(|_| self.extend(need))
    }

    /// Allocates memory for a body of about `len` bytes in a thread of its own, as far as the system has enough.
    pub(super) fn provide(&mut self, len: usize) -> Result<(), Error> {
        self.settle();
        let need = BODY.saturating_add(len);
        if need <= self.allocated {
            return Ok(());
        }
        self.ensure_mapped(need)?;
        let end = with_margin(need).min(self.mapping.len());
        // A need that was just met may end within a page.
        let from = self.allocated / PAGE * PAGE;
        let start = Start(self.mapping.as_ptr());
        self.ahead = Ahead::start(move |stopped| start.allocate(from, end, stopped));
        Ok(())
    }

    /// Ends the thread that allocates memory. What is there is allocated.
    fn settle(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            self.allocated = ahead.stop().unwrap_or(0).max(self.allocated);
        }
    }

    /// Gives the memory of an open buffer back to the system. Its address space stays.
    pub(super) fn free(&mut self) -> Result<(), Error> {
        self.settle();
        self.version += 1;
        self.mapping.free(BODY..self.allocated)?;
        self.allocated = PAGE;
        Ok(())
    }

    fn extend(&mut self, len: usize) -> Result<(), memfd::Error> {
        memfd::grow(&self.fd, len as u64)?;
        self.version += 1;
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
    pub(super) fn body(&mut self, from: usize, len: usize) -> &mut [u8] {
        debug_assert!(BODY + from + len <= self.allocated);
        // SAFETY: allocated bytes are mapped; the buffer is open, so that no reader takes them for a commit, and the
        // exclusive borrow excludes other uses in this process.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr().add(BODY + from), len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::{CommitId, DriverEpoch, Round};

    use crate::commit::{CommitMemory, CommitWriter};

    #[test]
    fn the_first_commit_finds_memory_that_was_provided_ahead() {
        const LEN: usize = 9 << 20;
        let memory = CommitMemory::create().unwrap();
        let fds = memory.fds(3).into_iter();
        let fds = fds.map(|fd| fd.try_clone_to_owned().unwrap()).collect();
        let mut writer = CommitWriter::open(fds).unwrap();
        let before = writer.growth(LEN);
        writer.provide(LEN).unwrap();
        while writer.growth(LEN) > before / 2 + 8192 {
            std::thread::yield_now();
        }
        let id = CommitId {
            epoch: DriverEpoch(1),
            round: Round(1),
            count: 0,
        };
        let mut write = writer.begin(id, 0).unwrap();
        // Longer than expected.
        write.append(2 * LEN).unwrap().fill(7);
        write.seal(None);
        assert!(writer.read(id).unwrap().1.iter().all(|byte| *byte == 7));
        // The bytes of older commits stay.
        writer.provide(3 * LEN).unwrap();
        assert!(writer.read(id).unwrap().1.iter().all(|byte| *byte == 7));
        let other = CommitMemory::create().unwrap();
        let fds = other.fds(2).into_iter();
        let fds = fds.map(|fd| fd.try_clone_to_owned().unwrap()).collect();
        let mut dropped = CommitWriter::open(fds).unwrap();
        dropped.provide(1 << 30).unwrap();
    }

    #[test]
    fn commits_of_a_later_round_find_memory_in_each_buffer() {
        const LEN: usize = 9 << 20;
        let id = |count| CommitId {
            epoch: DriverEpoch(1),
            round: Round(1),
            count,
        };
        let memory = CommitMemory::create().unwrap();
        let fds = memory.fds(3).into_iter();
        let fds = fds.map(|fd| fd.try_clone_to_owned().unwrap()).collect();
        let mut writer = CommitWriter::open(fds).unwrap();
        for count in 0..2 {
            let mut write = writer.begin(id(count), 0).unwrap();
            write.append(LEN).unwrap().fill(7);
            write.seal(None);
        }
        writer.set_limit(Some(100 * LEN as u64));
        let before = writer.growth(3 * LEN);
        writer.provide_in_all(3 * LEN).unwrap();
        assert_eq!(writer.growth(3 * LEN), before);
        writer.set_limit(None);
        writer.provide_in_all(3 * LEN).unwrap();
        while writer.growth(3 * LEN) > 0 {
            std::thread::yield_now();
        }
        assert!(writer.read(id(1)).unwrap().1.iter().all(|byte| *byte == 7));
        let mut write = writer.begin(id(2), 0).unwrap();
        write.append(3 * LEN).unwrap().fill(8);
        write.seal(None);
        assert!(writer.read(id(1)).unwrap().1.iter().all(|byte| *byte == 7));
        assert!(writer.read(id(2)).unwrap().1.iter().all(|byte| *byte == 8));
    }
}

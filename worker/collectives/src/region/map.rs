//! Creates, maps and aborts a region.

use std::{
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap},
        stat::fstat,
    },
    unistd::{Pid, ftruncate, getpid},
};

use super::eventcount::EventCount;
use crate::{
    error::{Error, Record},
    round_id::RoundId,
    signature::CallSignature,
};

const MAGIC: u32 = 0x4c43_5245;
const VERSION: u32 = 1;
const PAGE: usize = 4096;
const SLOT_LEN: usize = 256;

/// Bytes of one input or output buffer.
pub(crate) const SLICE: usize = 4 << 20;

#[repr(C, align(64))]
struct Padded<T>(T);

#[repr(C)]
struct Header {
    magic: AtomicU32,
    version: AtomicU32,
    members: AtomicU32,
    _reserved: u32,
    round_mark: AtomicU64,
    release: Padded<EventCount>,
    leader: Padded<EventCount>,
    arrived: Padded<AtomicU32>,
    failure: Padded<Failure>,
    best_effort_arrived: Padded<AtomicU32>,
    best_effort_release: Padded<EventCount>,
}

#[repr(C)]
struct Failure {
    state: AtomicU32,
    words: [AtomicU64; 6],
}

#[repr(C, align(64))]
struct CallCell([AtomicU64; 3]);

#[repr(C, align(256))]
struct MemberSlot {
    attached: AtomicU32,
    waits_at: AtomicU32,
    calls: [CallCell; 2],
}

const _: () = {
    assert!(std::mem::offset_of!(Header, release) == 64);
    assert!(std::mem::offset_of!(Header, leader) == 128);
    assert!(std::mem::offset_of!(Header, arrived) == 192);
    assert!(std::mem::offset_of!(Header, failure) == 256);
    assert!(std::mem::offset_of!(Header, best_effort_arrived) == 320);
    assert!(std::mem::offset_of!(Header, best_effort_release) == 384);
    assert!(size_of::<Header>() <= PAGE && size_of::<MemberSlot>() == SLOT_LEN);
};

fn data_offset(members: u32) -> usize {
    (PAGE + members as usize * SLOT_LEN).next_multiple_of(PAGE)
}

/// Size in bytes of the region of a host with `local_count` members. Most of it is never touched.
pub fn region_len(local_count: u32) -> usize {
    data_offset(local_count) + (local_count as usize + 1) * 2 * SLICE
}

/// Creates a fresh region for `local_count` members: a memfd of [`region_len`] zeroes that cannot
/// shrink.
///
/// # Errors
/// [`Error::System`] if the system is out of descriptors or memory.
pub fn create_region(local_count: u32) -> Result<OwnedFd, Error> {
    let fd = memfd_create(
        c"elasticrun-region",
        MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING,
    )
    .map_err(Error::system("memfd_create"))?;
    ftruncate(&fd, region_len(local_count) as i64).map_err(Error::system("ftruncate"))?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).map_err(Error::system("fcntl"))?;
    Ok(fd)
}

/// Aborts the round of this region. Each member of the host that waits in the data plane, or calls
/// it from now on, returns [`Error::Aborted`]. A leader that waits for another host returns within
/// 5 ms.
///
/// The agent calls it when a member died or an abort came. It does not block and may be repeated.
/// It sets bit 0 of the words at offsets 64, 128 and 384 of the region and wakes the waiters on
/// them (futex, shared).
pub fn abort_region(map: &RegionMap) {
    map.release().abort();
    map.leader().abort();
    map.best_effort_release().abort();
}

/// A region mapped into this process. A forked child does not inherit it.
#[derive(Debug)]
pub struct RegionMap {
    start: NonNull<u8>,
    len: usize,
    members: u32,
    /// The process that mapped the region.
    owner: Pid,
}

// SAFETY: the pointer leads to atomics, and to buffers that only unsafe functions of this crate
// reach, whose callers keep to the barriers. The mapping itself never moves.
unsafe impl Send for RegionMap {}
// SAFETY: as above.
unsafe impl Sync for RegionMap {}

impl RegionMap {
    /// Maps the region behind `fd`, created for `local_count` members. `fd` may be closed
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::Config`] if it is too small, [`Error::System`] if it cannot be mapped.
    pub fn map(fd: impl AsFd, local_count: u32) -> Result<Self, Error> {
        let len = region_len(local_count);
        let size = fstat(fd.as_fd()).map_err(Error::system("fstat"))?.st_size;
        if u64::try_from(size).unwrap_or(0) < len as u64 {
            return Err(Error::Config(format!(
                "the region has {size} bytes, {local_count} members need {len}"
            )));
        }
        let length = std::num::NonZeroUsize::new(len).ok_or(Error::System {
            call: "mmap",
            errno: Errno::EINVAL,
        })?;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let start = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE,
                fd.as_fd(),
                0,
            )
        }
        .map_err(Error::system("mmap"))?;
        let map = Self {
            start: start.cast(),
            len,
            members: local_count,
            owner: getpid(),
        };
        // SAFETY: the range is the mapping just made. A forked child (a data loader) neither needs
        // it nor may keep its memory alive.
        unsafe { madvise(start, len, MmapAdvise::MADV_DONTFORK) }
            .map_err(Error::system("madvise"))?;
        Ok(map)
    }

    /// Whether the round of this region was aborted.
    pub fn is_aborted(&self) -> bool {
        self.release().is_aborted()
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is at least a page, page-aligned and lives as long as `self`; all fields
        // are atomics or padding, for which any bytes are valid.
        unsafe { self.start.cast().as_ref() }
    }

    fn slot(&self, member: u32) -> &MemberSlot {
        assert!(member < self.members);
        // SAFETY: as for the header; the slot of a member lies within the mapping and is aligned.
        unsafe {
            self.start
                .add(PAGE + member as usize * SLOT_LEN)
                .cast()
                .as_ref()
        }
    }

    /// Occupies the slot of `member`. The first member to attach marks the region with the round.
    pub(crate) fn attach(&self, member: u32, round_id: RoundId) -> Result<(), Error> {
        let header = self.header();
        let mark = round_id.epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round_id.round ^ (1 << 63);
        let mark = mark.max(1);
        // Relaxed: these words only detect a wrong region. No data is published through them.
        let marked =
            header
                .round_mark
                .compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed);
        if marked.is_err_and(|found| found != mark) {
            return Err(Error::Config(
                "the region was used by another round: each round needs a fresh one".to_owned(),
            ));
        }
        header.magic.store(MAGIC, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        header.members.store(self.members, Ordering::Relaxed);
        if self.slot(member).attached.swap(1, Ordering::Relaxed) != 0 {
            return Err(Error::Config(format!(
                "local index {member} is taken in this region already"
            )));
        }
        Ok(())
    }

    pub(crate) fn release(&self) -> &EventCount {
        &self.header().release.0
    }

    pub(crate) fn leader(&self) -> &EventCount {
        &self.header().leader.0
    }

    pub(crate) fn arrived(&self) -> &AtomicU32 {
        &self.header().arrived.0
    }

    /// Number of members that have arrived at the best-effort barrier.
    pub(crate) fn best_effort_arrived(&self) -> &AtomicU32 {
        &self.header().best_effort_arrived.0
    }

    /// Notified when all have arrived.
    pub(crate) fn best_effort_release(&self) -> &EventCount {
        &self.header().best_effort_release.0
    }

    /// Relaxed store: it is read only to name missing members, or after a barrier.
    pub(crate) fn set_waits_at(&self, member: u32, barrier: u32) {
        self.slot(member).waits_at.store(barrier, Ordering::Relaxed);
    }

    pub(crate) fn waits_at(&self, member: u32) -> u32 {
        self.slot(member).waits_at.load(Ordering::Relaxed)
    }

    /// Relaxed stores: the barrier that follows publishes them.
    pub(crate) fn set_call(&self, member: u32, parity: usize, call: &CallSignature) {
        let cell = &self.slot(member).calls[parity].0;
        let code = u64::from(call.code) | u64::from(call.root) << 32;
        cell[0].store(code, Ordering::Relaxed);
        cell[1].store(call.len, Ordering::Relaxed);
        cell[2].store(call.seq, Ordering::Relaxed);
    }

    pub(crate) fn call(&self, member: u32, parity: usize) -> CallSignature {
        let cell = &self.slot(member).calls[parity].0;
        let code = cell[0].load(Ordering::Relaxed);
        CallSignature {
            code: code as u32,
            root: (code >> 32) as u32,
            len: cell[1].load(Ordering::Relaxed),
            seq: cell[2].load(Ordering::Relaxed),
        }
    }

    /// Records a failure, unless one is recorded already, then aborts.
    pub(crate) fn fail(&self, record: Record) {
        self.record(record);
        abort_region(self);
    }

    /// Records that a member left, and releases the members that wait for it at a barrier. A leader
    /// that still serves other hosts in an operation which the member completed is not disturbed.
    pub(crate) fn leave(&self, record: Record) {
        self.record(record);
        self.release().leave();
        self.leader().leave();
        self.best_effort_release().leave();
    }

    fn record(&self, record: Record) {
        let failure = &self.header().failure.0;
        // Acquire/release on the state orders the words between the one writer and all readers.
        if failure
            .state
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            for (cell, word) in failure.words.iter().zip(record.0) {
                cell.store(word, Ordering::Relaxed);
            }
            failure.state.store(2, Ordering::Release);
        }
    }

    /// The first recorded failure, or an abort if none is recorded.
    pub(crate) fn failure(&self, round_id: RoundId) -> Error {
        let failure = &self.header().failure.0;
        if failure.state.load(Ordering::Acquire) != 2 {
            return Error::Aborted { round_id };
        }
        Record(
            failure
                .words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed)),
        )
        .to_error(round_id)
    }

    /// Start of an input buffer: page-aligned, [`SLICE`] bytes.
    pub(crate) fn input(&self, member: u32, parity: usize) -> *mut u8 {
        self.buffer(member as usize * 2 + parity)
    }

    /// Start of an output buffer: page-aligned, [`SLICE`] bytes.
    pub(crate) fn output(&self, parity: usize) -> *mut u8 {
        self.buffer(self.members as usize * 2 + parity)
    }

    fn buffer(&self, index: usize) -> *mut u8 {
        let offset = data_offset(self.members) + index * SLICE;
        assert!(offset + SLICE <= self.len);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for RegionMap {
    fn drop(&mut self) {
        if self.owner != getpid() {
            // In a forked child, the range is not mapped, or something else is mapped there.
            return;
        }
        // SAFETY: the range is this value's own mapping, and nothing borrowed from it outlives it.
        if let Err(error) = unsafe { munmap(self.start.cast(), self.len) } {
            tracing::warn!(%error, "could not unmap the region");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: RoundId = RoundId { epoch: 1, round: 2 };

    #[test]
    fn a_region_serves_one_round_and_each_member_once() {
        let fd = create_region(2).unwrap();
        let map = RegionMap::map(&fd, 2).unwrap();
        map.attach(0, ROUND).unwrap();
        assert!(matches!(map.attach(0, ROUND), Err(Error::Config(_))));
        let newer = RoundId { epoch: 1, round: 3 };
        assert!(matches!(map.attach(1, newer), Err(Error::Config(_))));
        map.attach(1, ROUND).unwrap();
    }

    #[test]
    fn too_small_is_refused() {
        let fd = create_region(2).unwrap();
        assert!(matches!(RegionMap::map(&fd, 3), Err(Error::Config(_))));
    }

    #[test]
    fn the_first_failure_is_kept() {
        let fd = create_region(2).unwrap();
        let map = RegionMap::map(&fd, 2).unwrap();
        assert!(!map.is_aborted());
        map.fail(Record::from_error(&Error::PeerLeft { rank: 7 }));
        map.fail(Record::from_error(&Error::PeerLeft { rank: 8 }));
        assert!(map.is_aborted());
        assert_eq!(map.failure(ROUND), Error::PeerLeft { rank: 7 });
    }

    #[test]
    fn an_agent_aborts_without_a_record() {
        let fd = create_region(1).unwrap();
        let member = RegionMap::map(&fd, 1).unwrap();
        abort_region(&RegionMap::map(&fd, 1).unwrap());
        assert!(member.is_aborted());
        assert_eq!(member.failure(ROUND), Error::Aborted { round_id: ROUND });
    }
}

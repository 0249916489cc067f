//! The memory layout of a buffer, and how to seal and pin it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use elasticrun_protocol::{CommitId, CommitKey, DriverEpoch, Round, Shard};

use crate::memfd::{self, Mapping, PAGE, Shared};

/// An error of commit memory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The memory failed; the newest complete commit is intact.
    #[error(transparent)]
    Memory(#[from] memfd::Error),
    /// The memory is no commit memory, or is of a version that this build does not know.
    #[error(
        "the descriptor is no commit memory of this program (magic {magic:x}, version {version}, {size} bytes); run agent and worker of the same release"
    )]
    NotCommits {
        /// The first field.
        magic: u64,
        /// The second field.
        version: u32,
        /// The third field.
        size: u32,
    },
    /// A header is damaged and no other commit is left. A stray write may be the cause.
    #[error(
        "the header of commit buffer {buffer} is damaged ({why}) and no other commit is here; use another copy"
    )]
    Corrupt {
        /// The index of the buffer.
        buffer: usize,
        /// The damage.
        why: &'static str,
    },
    /// A live writer changes the headers faster than they can be read.
    #[error("the worker commits without a pause; read again")]
    Busy,
    /// The commit is not newer than the newest one. If that one is void, discard it first.
    #[error("commit {id} is not newer than {newest}; discard what is void first")]
    NotNewer {
        /// The refused id.
        id: CommitId,
        /// The newest id in the memory.
        newest: CommitId,
    },
    /// The number of descriptors is not 2, 3 or 4.
    #[error("{count} descriptors came for commits; run agent and worker of the same release")]
    Buffers {
        /// The number of descriptors.
        count: usize,
    },
    /// Another commit of this memory is pinned, or its worker cannot leave pinned commits alone.
    #[error("commit {id} cannot be pinned now; copy it later")]
    Unpinnable {
        /// The requested id.
        id: CommitId,
    },
    /// The memory holds no complete commit of this id, or no longer.
    #[error("commit {id} is not in this memory; choose one of those that are")]
    Gone {
        /// The requested id.
        id: CommitId,
    },
}

/// The header of a complete commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// The id of the commit.
    pub id: CommitId,
    /// Which part of the state it is.
    pub shard: Shard,
    /// Bytes of the body.
    pub len: u64,
    /// The version of the body's format, chosen by the writer.
    pub state_version: u64,
    /// A digest of the body, if the writer gave one.
    pub digest: Option<u64>,
}

impl Info {
    /// What distinguishes the commit from all others of the run.
    pub fn key(&self) -> CommitKey {
        CommitKey {
            commit: self.id,
            shard: self.shard,
        }
    }
}

/// The largest number of buffers.
pub(super) const MAX_BUFFERS: usize = 4;

/// The number of buffers with which a worker can leave a pinned one alone.
pub(super) const PINNABLE: usize = 3;

/// The largest number of commits that a worker keeps beside its newest one.
pub(super) const MAX_KEPT: usize = 2;

const MAGIC: u64 = u64::from_le_bytes(*b"ERUNCMIT");
const VERSION: u32 = 3;
const HAS_DIGEST: u64 = 1;

/// The offset of the body.
pub(super) const BODY: usize = PAGE;

#[derive(Debug)]
#[repr(C, align(128))]
struct Head {
    magic: AtomicU64,
    version: AtomicU32,
    size: AtomicU32,
    body: AtomicU64,
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Seal {
    seal: AtomicU64,
    /// The last used serial, from which a later writer continues.
    serial: AtomicU64,
    /// How often the buffer was opened although it was pinned. 0 in memory of an older worker.
    overruns: AtomicU64,
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Record([AtomicU64; 8]);

/// Counts the readers that copy the commit of this buffer. Written by the agent.
#[derive(Debug)]
#[repr(C, align(128))]
struct Pins(AtomicU64);

/// The part of the state that the record of the same index is: layout, index and number of shards, check. All words are
/// 0 for the only shard of a state, and in memory of a worker of version 1.
#[derive(Debug)]
#[repr(C, align(128))]
struct ShardRecord([AtomicU64; 3]);

/// The commits that the writer keeps, by their tags; 0 for none. Written by the agent, in the header of the first buffer.
#[derive(Debug)]
#[repr(C, align(128))]
struct KeptTags([AtomicU64; MAX_KEPT]);

/// Version 3 of a buffer's header.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    head: Head,
    seal: Seal,
    records: [Record; 2],
    // Since version 2. In older memory these bytes are 0 and unused.
    pins: Pins,
    shards: [ShardRecord; 2],
    // Since version 3, likewise.
    kept: KeptTags,
}

// SAFETY: atomics all through; padding is never read.
unsafe impl Shared for Header {}

/// Bytes of a header of version 1, which suffice.
const MIN_SIZE: u32 = 512;
const SIZE: u32 = size_of::<Header>() as u32;
const _: () = assert!(std::mem::offset_of!(Header, pins) == MIN_SIZE as usize);
const _: () = assert!(size_of::<Header>() == 1024 && size_of::<Header>() <= BODY);

impl Record {
    /// Returns the check of the record.
    fn store(&self, info: &Info) -> u64 {
        let mut words = [
            info.id.epoch.0,
            info.id.round.0,
            info.id.count,
            info.len,
            info.state_version,
            info.digest.unwrap_or(0),
            if info.digest.is_some() { HAS_DIGEST } else { 0 },
            0,
        ];
        words[7] = check(&words);
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        words[7]
    }

    fn load(&self) -> [u64; 8] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

impl ShardRecord {
    /// Stores the shard of a commit whose record has this check.
    fn store(&self, shard: Shard, record: u64) {
        let mut words = [0; 3];
        if shard != Shard::default() {
            words[0] = shard.layout;
            words[1] = u64::from(shard.index) | u64::from(shard.of) << 32;
            words[2] = shard_check(&words, record);
        }
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn load(&self) -> [u64; 3] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

/// The words of a commit: its record and its shard.
pub(super) type Words = ([u64; 8], [u64; 3]);

fn shard(words: &[u64; 3], record: u64) -> Result<Shard, &'static str> {
    if *words == [0; 3] {
        return Ok(Shard::default());
    }
    if words[2] != shard_check(words, record) {
        return Err("the check of its shard does not fit");
    }
    Ok(Shard {
        layout: words[0],
        index: words[1] as u32,
        of: (words[1] >> 32) as u32,
    })
}

/// A check sum of a shard, also of the record that it belongs to.
fn shard_check(words: &[u64; 3], record: u64) -> u64 {
    check(&[words[0], words[1], record, 0, 0, 0, 0, 0])
}

/// A check sum, which distinguishes a record from a stray write.
fn check(words: &[u64; 8]) -> u64 {
    words[..7].iter().fold(MAGIC, |sum, word| {
        let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    })
}

/// Distinguishes a commit from all others of a run. Never 0.
fn tag(id: CommitId) -> u64 {
    check(&[id.epoch.0, id.round.0, id.count, 0, 0, 0, 0, 0]) | 1
}

pub(super) fn info((words, shard_words): &Words, file: u64) -> Result<Info, &'static str> {
    if words[7] != check(words) {
        return Err("its check does not fit");
    }
    let capacity = file.saturating_sub(BODY as u64);
    if words[3] > capacity {
        return Err("its length is beyond the memory");
    }
    Ok(Info {
        id: CommitId {
            epoch: DriverEpoch(words[0]),
            round: Round(words[1]),
            count: words[2],
        },
        shard: shard(shard_words, words[7])?,
        len: words[3],
        state_version: words[4],
        digest: (words[6] & HAS_DIGEST != 0).then_some(words[5]),
    })
}

impl Header {
    pub(super) fn in_mapping(mapping: &Mapping) -> &Self {
        mapping
            .get(0)
            .expect("a buffer is mapped from its start, and a header fits into its first page")
    }

    /// Writes the header of new memory.
    pub(super) fn format(&self) {
        self.head.version.store(VERSION, Ordering::Relaxed);
        self.head.size.store(SIZE, Ordering::Relaxed);
        self.head.body.store(BODY as u64, Ordering::Relaxed);
        self.head.magic.store(MAGIC, Ordering::Release);
    }

    /// Checks the head of memory that another process made.
    pub(super) fn validate(&self) -> Result<(), Error> {
        let magic = self.head.magic.load(Ordering::Acquire);
        let version = self.head.version.load(Ordering::Relaxed);
        let size = self.head.size.load(Ordering::Relaxed);
        let body = self.head.body.load(Ordering::Relaxed);
        if magic != MAGIC || version == 0 || size < MIN_SIZE || body != BODY as u64 {
            return Err(Error::NotCommits {
                magic,
                version,
                size,
            });
        }
        Ok(())
    }

    /// The current seal; 0 while the buffer is written.
    pub(super) fn seal(&self) -> u64 {
        self.seal.seal.load(Ordering::Acquire)
    }

    /// C1, first half: later writes belong to no commit yet.
    pub(super) fn open(&self) {
        self.seal.seal.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// As [`Header::open`], unless the buffer is pinned (C6). Then its commit stays.
    pub(super) fn open_unless_pinned(&self) -> bool {
        // Usually this suffices, and the seal of a pinned commit is not touched.
        if self.is_pinned() {
            return false;
        }
        let seal = self.seal.seal.load(Ordering::Relaxed);
        self.seal.seal.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_free = !self.is_pinned();
        if !is_free {
            // Not a byte was written, so it is the same commit (C4).
            self.seal.seal.store(seal, Ordering::SeqCst);
        }
        is_free
    }

    /// As [`Header::open`], also if the buffer is pinned. Its readers notice by [`Header::overruns`].
    pub(super) fn open_despite_pins(&self) {
        self.open();
        // After the seal: a reader that counts this as of before its pin must not find the seal.
        self.seal.overruns.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The number of calls of [`Header::open_despite_pins`]. If it is the same before a pin and after a read, the bytes are
    /// those of the pinned commit.
    pub(super) fn overruns(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.seal.overruns.load(Ordering::SeqCst)
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.pins.0.load(Ordering::SeqCst) != 0
    }

    /// Pins the buffer if this is its seal. Else nothing is changed.
    pub(super) fn pin(&self, seal: u64) -> bool {
        self.pins.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_pinned = self.seal.seal.load(Ordering::SeqCst) == seal;
        if !is_pinned {
            self.unpin();
        }
        is_pinned
    }

    pub(super) fn unpin(&self) {
        self.pins.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// C1, second half: all earlier writes are part of the commit.
    pub(super) fn close(&self, info: &Info) {
        // The record that is not valid now. In an open buffer none is.
        let slot = (self.seal.seal.load(Ordering::Relaxed) & 1) ^ 1;
        let check = self.records[slot as usize].store(info);
        self.shards[slot as usize].store(info.shard, check);
        let serial = self.seal.serial.load(Ordering::Relaxed).wrapping_add(1);
        self.seal.serial.store(serial, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.seal.seal.store(serial << 1 | slot, Ordering::Release);
    }

    /// Sets the commits that the writer keeps. Those that stay are kept at any instant.
    pub(super) fn keep(&self, commits: [Option<CommitId>; MAX_KEPT]) {
        let wanted = commits.map(|id| id.map_or(0, tag));
        for tag in wanted.into_iter().filter(|tag| *tag != 0) {
            let slots = || self.kept.0.iter().map(|slot| slot.load(Ordering::SeqCst));
            if slots().any(|kept| kept == tag) {
                continue;
            }
            // There are as many slots as wanted commits, so one has 0 or a commit that is not wanted.
            let is_free = |kept: u64| kept == 0 || !wanted.contains(&kept);
            if let Some(free) = slots().position(is_free) {
                self.kept.0[free].store(tag, Ordering::SeqCst);
            }
        }
        for slot in &self.kept.0 {
            if !wanted.contains(&slot.load(Ordering::SeqCst)) {
                slot.store(0, Ordering::SeqCst);
            }
        }
    }

    /// Whether the writer keeps any commit, if this is the header of the first buffer.
    pub(super) fn keeps_any(&self) -> bool {
        self.kept
            .0
            .iter()
            .any(|slot| slot.load(Ordering::SeqCst) != 0)
    }

    /// Whether the writer keeps a commit, if this is the header of the first buffer.
    pub(super) fn keeps(&self, id: CommitId) -> bool {
        let tag = tag(id);
        self.kept
            .0
            .iter()
            .any(|slot| slot.load(Ordering::SeqCst) == tag)
    }

    pub(super) fn words(&self, seal: u64) -> Words {
        let slot = (seal & 1) as usize;
        (self.records[slot].load(), self.shards[slot].load())
    }
}

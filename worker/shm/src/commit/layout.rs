//! The memory layout of a buffer, and how to read and seal it.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

use elasticrun_protocol::{CommitId, DriverEpoch, Round};

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
        /// 0 or 1.
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
    /// Bytes of the body.
    pub len: u64,
    /// The version of the body's format, chosen by the writer.
    pub state_version: u64,
    /// A digest of the body, if the writer gave one.
    pub digest: Option<u64>,
}

const MAGIC: u64 = u64::from_le_bytes(*b"ERUNCMIT");
const VERSION: u32 = 1;
const HAS_DIGEST: u64 = 1;

/// The offset of the body.
pub(super) const BODY: usize = PAGE;

/// How often a read is repeated that collides with a live writer. A read takes about 50 ns, a commit more.
const MAX_READS: usize = 10_000;

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
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Record([AtomicU64; 8]);

/// Version 1 of a buffer's header.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    head: Head,
    seal: Seal,
    records: [Record; 2],
}

// SAFETY: atomics all through; padding is never read.
unsafe impl Shared for Header {}

const SIZE: u32 = size_of::<Header>() as u32;
const _: () = assert!(size_of::<Header>() == 512);

impl Record {
    fn store(&self, info: &Info) {
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
    }

    fn load(&self) -> [u64; 8] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

/// A check sum, which distinguishes a record from a stray write.
fn check(words: &[u64; 8]) -> u64 {
    words[..7].iter().fold(MAGIC, |sum, word| {
        let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    })
}

fn info(words: &[u64; 8], file: u64) -> Result<Info, &'static str> {
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
        if magic != MAGIC || version == 0 || size < SIZE || body != BODY as u64 {
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

    /// C1, second half: all earlier writes are part of the commit.
    pub(super) fn close(&self, info: &Info) {
        // The record that is not valid now. In an open buffer none is.
        let slot = (self.seal.seal.load(Ordering::Relaxed) & 1) ^ 1;
        self.records[slot as usize].store(info);
        let serial = self.seal.serial.load(Ordering::Relaxed).wrapping_add(1);
        self.seal.serial.store(serial, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.seal.seal.store(serial << 1 | slot, Ordering::Release);
    }

    fn words(&self, seal: u64) -> [u64; 8] {
        self.records[(seal & 1) as usize].load()
    }
}

/// The state of one buffer at one instant: its seal, and its commit if it is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferState {
    pub(super) seal: u64,
    pub(super) info: Option<Info>,
}

/// Reads the state of both buffers at one instant, also while a live process writes.
pub(super) fn read_states(
    headers: [&Header; 2],
    fds: [&impl AsFd; 2],
) -> Result<[BufferState; 2], Error> {
    for _ in 0..MAX_READS {
        let seals = headers.map(Header::seal);
        let words = [headers[0].words(seals[0]), headers[1].words(seals[1])];
        fence(Ordering::Acquire);
        if headers.map(Header::seal) != seals {
            std::hint::spin_loop();
            continue;
        }
        let mut seen = seals.map(|seal| BufferState { seal, info: None });
        let mut damage = None;
        for (buffer, seen) in seen
            .iter_mut()
            .enumerate()
            .filter(|(_, seen)| seen.seal != 0)
        {
            let file = memfd::len(fds[buffer]).unwrap_or(0);
            match info(&words[buffer], file) {
                Ok(info) => seen.info = Some(info),
                Err(why) => {
                    tracing::warn!(
                        buffer,
                        why,
                        "a commit header is damaged, its commit is left out"
                    );
                    damage = Some(Error::Corrupt { buffer, why });
                }
            }
        }
        return match damage {
            Some(error) if seen.iter().all(|seen| seen.info.is_none()) => Err(error),
            _ => Ok(seen),
        };
    }
    Err(Error::Busy)
}

/// The buffer with the newest commit, and that commit.
pub(super) fn newest(seen: &[BufferState; 2]) -> Option<(usize, Info)> {
    let infos = seen.iter().enumerate();
    infos
        .filter_map(|(buffer, seen)| Some((buffer, seen.info?)))
        .max_by_key(|(_, info)| info.id)
}

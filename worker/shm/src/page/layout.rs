//! Where what lies in the page.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    boottime,
    memfd::{self, Mapping, PAGE, Shared},
};

/// Why a page cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The memory itself.
    #[error(transparent)]
    Memory(#[from] memfd::Error),
    /// Its size could not be fixed.
    #[error("cannot seal a page of shared memory")]
    Seal(#[source] io::Error),
    /// It does not begin as a page does, or is of a form that this build does not know.
    #[error(
        "the descriptor is no page of this program (magic {magic:x}, version {version}, {size} bytes); run agent and worker of the same release"
    )]
    NotAPage {
        /// First word.
        magic: u64,
        /// Second word.
        version: u32,
        /// Third word.
        size: u32,
    },
}

/// What a worker process is doing.
///
/// ```text
/// Attached -> Waiting -> Training -> Left -> Waiting ...
///                            \-----> Finished
/// any -> Exiting
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// Has its page; user code runs, but not yet `run()`.
    Attached = 0,
    /// Waits at `run()` for a round.
    Waiting = 1,
    /// Is in a round.
    Training = 2,
    /// Has left a round and will wait again.
    Left = 3,
    /// Has returned from `run()`.
    Finished = 4,
    /// Is in an orderly `exit()`; its exit status will tell.
    Exiting = 5,
}

impl Phase {
    fn from_bits(bits: u32) -> Self {
        match bits & 0xff {
            0 => Self::Attached,
            1 => Self::Waiting,
            2 => Self::Training,
            3 => Self::Left,
            4 => Self::Finished,
            _ => Self::Exiting,
        }
    }
}

/// The phase in a word.
pub(crate) fn phase_of(word: u32) -> Phase {
    Phase::from_bits(word)
}

/// The phase in which an orderly exit began, if one did.
pub(crate) fn phase_at_exit(word: u32) -> Option<Phase> {
    (phase_of(word) == Phase::Exiting).then(|| Phase::from_bits(word >> 8))
}

/// The word of a process that begins to exit, which remembers what it did before.
pub(crate) fn exiting(word: u32) -> u32 {
    match phase_of(word) {
        Phase::Exiting => word,
        before => Phase::Exiting as u32 | (before as u32) << 8,
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"ERUNPAGE");
const VERSION: u32 = 1;

/// Two cache lines, since processors fetch them in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Head {
    magic: AtomicU64,
    version: AtomicU32,
    /// Bytes of the layout. Later versions append and raise it.
    size: AtomicU32,
}

/// Written by the kernel when its owner dies, else by the worker once.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Life {
    pub(crate) alive: AtomicU32,
    pub(crate) phase: AtomicU32,
}

/// Written by the training thread.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Progress {
    /// Tag of the round and boundaries in it.
    pub(crate) count: AtomicU64,
    /// The round entered last + 1, 0 for none.
    pub(crate) round: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) steps: AtomicU64,
}

/// Written by the agent; `abort` and `bell` also by a thread of the worker.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Orders {
    /// Tag of the round and what to do there.
    pub(crate) hold: AtomicU64,
    /// The newest round aborted + 1, 0 for none; older ones are over as well.
    pub(crate) abort: AtomicU64,
    /// Grows with each change of the two; what a waiting worker sleeps on.
    pub(crate) bell: AtomicU32,
    /// 1 once the host may go away. An agent that does not know the word leaves it 0.
    pub(crate) risk: AtomicU32,
    /// Nanoseconds of [`boottime`] until which the worker may go on; 0 for no end. An agent that does not know the word
    /// leaves it 0.
    pub(crate) lease: AtomicU64,
}

/// Written by the worker's own thread, apart from the training thread's line.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Beats {
    pub(crate) beats: AtomicU64,
}

/// Version 1 of the page.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Layout {
    head: Head,
    pub(crate) life: Life,
    pub(crate) progress: Progress,
    pub(crate) orders: Orders,
    pub(crate) beats: Beats,
}

// SAFETY: atomics all through; padding is never read.
unsafe impl Shared for Layout {}

const SIZE: u32 = size_of::<Layout>() as u32;
const _: () = assert!(size_of::<Layout>() == 5 * 128 && size_of::<Layout>() <= PAGE);

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Layout {
    /// Whether the round is over by an abort.
    pub(crate) fn aborted(&self, round: u64) -> bool {
        self.orders.abort.load(Ordering::SeqCst) > round
    }

    /// Aborts a round and all before it.
    pub(crate) fn abort(&self, round: u64) {
        let word = round.saturating_add(1);
        self.orders.abort.fetch_max(word, Ordering::SeqCst);
        self.ring();
    }

    /// Whether the worker may go on: there is no lease, or it is not over.
    pub(crate) fn is_leased(&self) -> bool {
        let until = self.orders.lease.load(Ordering::Acquire);
        until == 0 || nanos(boottime()) < until
    }

    /// Sets the end of the lease; a worker that waits for that goes on.
    pub(crate) fn set_lease(&self, until: Duration) {
        let before = self
            .orders
            .lease
            .swap(nanos(until).max(1), Ordering::SeqCst);
        if before != 0 && before <= nanos(boottime()) {
            self.ring();
        }
    }

    /// Makes a worker at a boundary look again.
    pub(crate) fn ring(&self) {
        self.orders.bell.fetch_add(1, Ordering::SeqCst);
        crate::futex::wake_all(&self.orders.bell);
    }
}

/// The page as mapped by this process. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Page(Arc<Mapping>);

impl Page {
    /// Makes the head of new memory.
    pub(crate) fn format(fd: &impl AsFd) -> Result<Self, Error> {
        let mapping = Mapping::new(fd, PAGE)?;
        let page = Self(Arc::new(mapping));
        let head = &page.layout().head;
        head.version.store(VERSION, Ordering::Relaxed);
        head.size.store(SIZE, Ordering::Relaxed);
        head.magic.store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// Maps memory that another process made, and checks its head.
    pub(crate) fn open(fd: &impl AsFd) -> Result<Self, Error> {
        let page = Self(Arc::new(Mapping::new(fd, PAGE)?));
        let head = &page.layout().head;
        let magic = head.magic.load(Ordering::Acquire);
        let version = head.version.load(Ordering::Relaxed);
        let size = head.size.load(Ordering::Relaxed);
        if magic != MAGIC || version == 0 || size < SIZE {
            return Err(Error::NotAPage {
                magic,
                version,
                size,
            });
        }
        Ok(page)
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.0
            .get(0)
            .expect("a page is mapped whole, and its layout fits into it")
    }
}

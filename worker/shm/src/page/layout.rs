//! The memory layout of a page.

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
    /// The memory failed.
    #[error(transparent)]
    Memory(#[from] memfd::Error),
    /// The size of the page cannot be sealed.
    #[error("cannot seal a page of shared memory")]
    Seal(#[source] io::Error),
    /// The memory is no page, or is of a version that this build does not know.
    #[error(
        "the descriptor is no page of this program (magic {magic:x}, version {version}, {size} bytes); run agent and worker of the same release"
    )]
    NotAPage {
        /// The first field.
        magic: u64,
        /// The second field.
        version: u32,
        /// The third field.
        size: u32,
    },
}

/// The phase of a worker process.
///
/// ```text
/// Attached -> Waiting -> Training -> Left -> Waiting ...
///                            \-----> Finished
/// any -> Exiting
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// The process has its page. User code runs, but not yet `run()`.
    Attached = 0,
    /// The process waits at `run()` for a round.
    Waiting = 1,
    /// The process is in a round.
    Training = 2,
    /// The process has left a round and will wait again.
    Left = 3,
    /// The process has returned from `run()`.
    Finished = 4,
    /// The process is in an orderly `exit()`. Its exit status gives the cause.
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

/// The word of a process that begins to exit. It keeps the phase before.
pub(crate) fn exiting(word: u32) -> u32 {
    match phase_of(word) {
        Phase::Exiting => word,
        before => Phase::Exiting as u32 | (before as u32) << 8,
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"ERUNPAGE");
const VERSION: u32 = 1;

/// The head of the page. Each part has two cache lines, since processors fetch lines in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Head {
    magic: AtomicU64,
    version: AtomicU32,
    /// Bytes of the layout. Later versions append fields and raise it.
    size: AtomicU32,
}

/// The liveness words. The kernel writes `owner` when its thread dies; else the worker writes both.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Liveness {
    pub(crate) owner: AtomicU32,
    pub(crate) phase: AtomicU32,
}

/// The progress of the worker, written by its training thread.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Progress {
    /// The tag of the round and the number of boundaries in it.
    pub(crate) count: AtomicU64,
    /// The round entered last + 1; 0 for none.
    pub(crate) round: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) steps: AtomicU64,
}

/// The control words. The agent writes them; a thread of the worker also writes `abort` and `eventcount`.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Control {
    /// The tag of a round and its hold.
    pub(crate) hold: AtomicU64,
    /// The newest aborted round + 1; 0 for none. Older rounds are over as well.
    pub(crate) abort: AtomicU64,
    /// Grows with each change of `hold` and `abort`, and when an ended lease is renewed. Waiting workers sleep on it.
    pub(crate) eventcount: AtomicU32,
    /// 1 once the host may go away. Agents that do not know the field leave it 0.
    pub(crate) risk: AtomicU32,
    /// The end of the lease in nanoseconds of [`boottime`]; 0 for no lease. Agents that do not know the field leave it 0.
    pub(crate) lease: AtomicU64,
}

/// The beats, written by the SDK's own thread. They are apart from the cache lines of the training thread.
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
    pub(crate) liveness: Liveness,
    pub(crate) progress: Progress,
    pub(crate) control: Control,
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
    /// Whether a round is aborted.
    pub(crate) fn aborted(&self, round: u64) -> bool {
        self.control.abort.load(Ordering::SeqCst) > round
    }

    /// Aborts a round and all before it.
    pub(crate) fn abort(&self, round: u64) {
        let word = round.saturating_add(1);
        self.control.abort.fetch_max(word, Ordering::SeqCst);
        self.notify();
    }

    /// Whether the worker may continue: there is no lease, or it has not ended.
    pub(crate) fn is_leased(&self) -> bool {
        let until = self.control.lease.load(Ordering::Acquire);
        until == 0 || nanos(boottime()) < until
    }

    /// Sets the end of the lease. Wakes a worker that waits for it.
    pub(crate) fn set_lease(&self, until: Duration) {
        let before = self
            .control
            .lease
            .swap(nanos(until).max(1), Ordering::SeqCst);
        if before != 0 && before <= nanos(boottime()) {
            self.notify();
        }
    }

    /// Wakes a worker that waits at a boundary, to check the words again.
    pub(crate) fn notify(&self) {
        self.control.eventcount.fetch_add(1, Ordering::SeqCst);
        crate::futex::wake_all(&self.control.eventcount);
    }
}

/// The page as mapped by this process. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Page(Arc<Mapping>);

impl Page {
    /// Maps new memory and writes its head.
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

//! The liveness of a worker: a robust futex in its page.
//!
//! The kernel keeps a list of the robust futexes that each thread holds. At the very start of the thread's exit, long
//! before the memory of the process is torn down, it sets `FUTEX_OWNER_DIED` in each word and wakes a waiter. The SDK's
//! own thread holds the word `owner` in this way. The word protects nothing; only its release matters.
//!
//! The word is the thread id with `FUTEX_WAITERS` always set, since the kernel wakes no waiter without it.
//!
//! # Guarantees
//! - A1 The word is released with the thread that holds it, whatever ends the thread: a signal, `exit`, `execve`, or the
//!   end of this thread alone. So hold it on a thread that lives as long as the process. If that thread ends earlier (a
//!   panic), the agent sees a death and kills the process, which no longer beats or reads messages.
//! - A2 A child made by `fork` does not inherit the list. Its exit changes nothing.
//! - A3 An orderly `exit()` sets the phase to `Exiting` first, see [`announce_exit`]. `_exit` and signals do not.

use std::{
    io,
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{
    futex,
    page::{Phase, WorkerPage},
};

/// The bit that the kernel sets in the word of a dead thread.
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;
/// The bit without which the kernel does not wake the agent.
pub(crate) const WAITERS: u32 = 0x8000_0000;
/// The bits of the word that hold the thread id of the owner; 0 before the first owner.
pub(crate) const OWNER_MASK: u32 = 0x3fff_ffff;
/// The value of these bits after an orderly release. No thread id is so large.
pub(crate) const RELEASED: u32 = OWNER_MASK;

/// The thread that holds the word.
pub(crate) fn thread_of(word: u32) -> Option<u32> {
    let thread = word & OWNER_MASK;
    (thread != 0 && thread != RELEASED && word & OWNER_DIED == 0).then_some(thread)
}

/// The kernel's `struct robust_list_head`, for a list of one entry.
#[derive(Debug)]
#[repr(C)]
struct List {
    first: *mut Entry,
    offset: libc::c_long,
    pending: *mut Entry,
    entry: Entry,
}

#[derive(Debug)]
#[repr(C)]
struct Entry {
    next: *mut Entry,
}

/// The size of the head as the kernel defines it: up to `pending`.
const HEAD: usize = std::mem::offset_of!(List, entry);

/// The robust futex `owner` of a page, held by this thread.
///
/// Dropping it does not release the futex: the thread holds it until it ends (A1), and a few bytes are leaked for that.
/// [`LivenessLock::release`] releases it.
#[derive(Debug)]
pub struct LivenessLock {
    list: NonNull<List>,
    /// Keeps the page mapped, for ever if the lock is dropped.
    page: Option<WorkerPage>,
    /// The list that the C library had registered for this thread.
    before: (*mut List, usize),
    /// The list belongs to one thread, so the lock is neither `Send` nor `Sync`.
    _thread: PhantomData<*mut ()>,
}

impl LivenessLock {
    /// Makes the calling thread the owner of the page's futex.
    ///
    /// It replaces the C library's robust list of this thread. So the thread must not hold robust pthread mutexes
    /// meanwhile.
    pub fn hold(page: &WorkerPage) -> io::Result<Self> {
        let page = page.clone();
        let word = page.layout().liveness.owner.as_ptr();
        let list = Box::leak(Box::new(List {
            first: ptr::null_mut(),
            offset: 0,
            pending: ptr::null_mut(),
            entry: Entry {
                next: ptr::null_mut(),
            },
        }));
        let list = NonNull::from(list);
        let start = list.as_ptr();
        // SAFETY: the list was just leaked, so it lives, and nothing else refers to it. The head's first field is the
        // link that closes the ring.
        unsafe {
            let entry = &raw mut (*start).entry;
            (*start).first = entry;
            (*start).entry.next = start.cast();
            (*start).offset = (word as isize).wrapping_sub(entry as isize) as libc::c_long;
        }
        let before = registered()?;
        register(start, HEAD)?;
        let thread = rustix::thread::gettid().as_raw_pid() as u32;
        let word = &page.layout().liveness.owner;
        word.store(thread | WAITERS, Ordering::SeqCst);
        futex::wake_all(word);
        Ok(Self {
            list,
            page: Some(page),
            before,
            _thread: PhantomData,
        })
    }

    /// Releases the futex. The agent sees a release, and the end of this thread is no death any more.
    pub fn release(mut self) -> io::Result<()> {
        if let Some(page) = self.page.take() {
            let word = &page.layout().liveness.owner;
            word.store(RELEASED | WAITERS, Ordering::SeqCst);
            futex::wake_all(word);
        }
        register(self.before.0, self.before.1)?;
        // SAFETY: leaked in `hold` and no longer known to the kernel; `self` is gone after this.
        drop(unsafe { Box::from_raw(self.list.as_ptr()) });
        Ok(())
    }
}

impl Drop for LivenessLock {
    fn drop(&mut self) {
        // The kernel writes to the page when this thread ends, so the page must stay mapped.
        std::mem::forget(self.page.take());
    }
}

fn registered() -> io::Result<(*mut List, usize)> {
    let mut head: *mut List = ptr::null_mut();
    let mut len: libc::size_t = 0;
    // SAFETY: both results are live; 0 names the calling thread.
    let result =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
    match result {
        0 => Ok((head, HEAD)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn register(head: *mut List, len: usize) -> io::Result<()> {
    // SAFETY: the head lives until another one replaces it, see the callers.
    match unsafe { libc::syscall(libc::SYS_set_robust_list, head, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The page on which an exit of this process is announced.
static EXIT: Mutex<Option<WorkerPage>> = Mutex::new(None);
static EXIT_PROCESS: AtomicU32 = AtomicU32::new(0);
static REGISTERED: Once = Once::new();

/// Registers an exit handler: an orderly `exit()` of this process sets the page's phase to `Exiting`. An exit of a forked
/// child does not.
pub fn announce_exit(page: &WorkerPage) {
    *EXIT.lock().unwrap_or_else(PoisonError::into_inner) = Some(page.clone());
    EXIT_PROCESS.store(std::process::id(), Ordering::SeqCst);
    REGISTERED.call_once(|| {
        // SAFETY: the handler is a function that lives as long as the program.
        if unsafe { libc::atexit(at_exit) } != 0 {
            tracing::warn!(
                "no room for an exit handler; orderly exits will look like sudden deaths"
            );
        }
    });
}

extern "C" fn at_exit() {
    if EXIT_PROCESS.load(Ordering::SeqCst) != std::process::id() {
        return;
    }
    // Never block an exit. The lock is held only briefly, when a page is announced.
    if let Ok(page) = EXIT.try_lock()
        && let Some(page) = &*page
    {
        page.set_phase(Phase::Exiting);
    }
}

//! The worker's sign of life: a robust futex in its page.
//!
//! The kernel keeps for each thread a list of futexes that it holds, and walks it at the very start of the
//! thread's exit, long before the memory of the process is torn down: each word gets `FUTEX_OWNER_DIED` and
//! a waiter is woken. The SDK's own thread holds the word `alive` so, and no lock is meant by it.
//!
//! The word is the thread's id with `FUTEX_WAITERS` always set, since the kernel wakes nobody without it.
//!
//! # What it tells, and what not
//! - A1 the word dies with the thread that holds it, whatever ends that: a signal, `exit`, `execve`, or the
//!   end of this thread alone. So hold it on a thread that lives as long as the process. If it ends earlier (a
//!   panic), the agent sees a death, and rightly kills what is left: a worker that no longer beats nor hears.
//! - A2 a child made by `fork` does not inherit the list: its exit changes nothing.
//! - A3 an orderly `exit()` sets the phase to `Exiting` first, see [`announce_exit`]; `_exit` and signals do not.

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

/// Set by the kernel in the word of a dead thread.
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;
/// Without it the kernel would not wake the agent.
pub(crate) const WAITERS: u32 = 0x8000_0000;
/// The part of the word that names the holder; 0 before anybody held it.
pub(crate) const HOLDER: u32 = 0x3fff_ffff;
/// In place of a thread id, which never gets so large: the holder let go in good order.
pub(crate) const RELEASED: u32 = HOLDER;

/// The kernel's `struct robust_list_head` for a list of one.
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

/// The size of the head as the kernel knows it: up to `pending`.
const HEAD: usize = std::mem::offset_of!(List, entry);

/// That this thread holds the word `alive` of its page.
///
/// Dropping it changes nothing: the thread holds the word until it ends (A1), and a few bytes are leaked for
/// that. [`Alive::release`] lets go in good order.
#[derive(Debug)]
pub struct Alive {
    list: NonNull<List>,
    /// Keeps the page mapped, for ever if this is dropped.
    page: Option<WorkerPage>,
    /// What the C library had registered for this thread.
    before: (*mut List, usize),
    /// The list is of this thread.
    _thread: PhantomData<*mut ()>,
}

impl Alive {
    /// Makes the calling thread the page's sign of life.
    ///
    /// It takes the place of the C library's list for this thread, so this thread must not hold robust
    /// pthread mutexes of others meanwhile.
    pub fn hold(page: &WorkerPage) -> io::Result<Self> {
        let page = page.clone();
        let word = page.layout().life.alive.as_ptr();
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
        // SAFETY: the list was just leaked, so it lives, and nobody else knows it. The head's first field is
        // the link that closes the ring.
        unsafe {
            let entry = &raw mut (*start).entry;
            (*start).first = entry;
            (*start).entry.next = start.cast();
            (*start).offset = (word as isize).wrapping_sub(entry as isize) as libc::c_long;
        }
        let before = registered()?;
        register(start, HEAD)?;
        let thread = rustix::thread::gettid().as_raw_pid() as u32;
        let word = &page.layout().life.alive;
        word.store(thread | WAITERS, Ordering::SeqCst);
        futex::wake_all(word);
        Ok(Self {
            list,
            page: Some(page),
            before,
            _thread: PhantomData,
        })
    }

    /// Lets go: the end of this thread means nothing any more, the agent sees a release and not a death.
    pub fn release(mut self) -> io::Result<()> {
        if let Some(page) = self.page.take() {
            let word = &page.layout().life.alive;
            word.store(RELEASED | WAITERS, Ordering::SeqCst);
            futex::wake_all(word);
        }
        register(self.before.0, self.before.1)?;
        // SAFETY: leaked in `hold` and no longer known to the kernel; `self` is gone after this.
        drop(unsafe { Box::from_raw(self.list.as_ptr()) });
        Ok(())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // The kernel writes to the page when this thread ends, so it must stay mapped.
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
    // SAFETY: the head lives until another takes its place, see the callers.
    match unsafe { libc::syscall(libc::SYS_set_robust_list, head, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whose exit is announced where.
static EXIT: Mutex<Option<WorkerPage>> = Mutex::new(None);
static EXIT_PROCESS: AtomicU32 = AtomicU32::new(0);
static REGISTERED: Once = Once::new();

/// Has an orderly `exit()` of this process, and of none that it forks, set the page's phase to `Exiting`.
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
    // Never block an exit: the lock is held for an instant only, when a page is announced.
    if let Ok(page) = EXIT.try_lock()
        && let Some(page) = &*page
    {
        page.set_phase(Phase::Exiting);
    }
}

//! The time slice of a thread, which determines how soon it runs after a wakeup while other threads use all processors.
//!
//! Since Linux 6.12 a thread of the fair class may request a shorter slice. Its deadline is then nearer, so after a
//! wakeup it runs before busy threads. Its share of the processor stays the same. Older kernels refuse or ignore the
//! request.

use std::{io, time::Duration};

/// The shortest time slice that the kernel grants.
pub const SHORTEST_SLICE: Duration = Duration::from_micros(100);

#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For a thread of the fair class, its slice in nanoseconds; 0 is the default.
    runtime: u64,
    deadline: u64,
    period: u64,
}

const ATTRIBUTES_SIZE: u32 = size_of::<Attributes>() as u32;

/// Sets the time slice of the calling thread, and of threads that it starts later. Zero is the default slice.
///
/// # Errors
/// The error of the kernel, or [`io::ErrorKind::Unsupported`] for a thread that is not of the fair class.
pub fn set_time_slice(slice: Duration) -> io::Result<()> {
    set_for_thread(0, slice)
}

/// Sets the time slice of a thread; 0 is the calling thread.
fn set_for_thread(thread: libc::pid_t, slice: Duration) -> io::Result<()> {
    let mut attributes = get(thread)?;
    attributes.runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the attributes live and their size is in them.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get(thread: libc::pid_t) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    let to = &raw mut attributes;
    // SAFETY: the attributes live and have this size.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, to, ATTRIBUTES_SIZE, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let policy = attributes.policy as libc::c_int;
    if !matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // The kernel has filled in its own size and flags; a request must not contain them.
    (attributes.size, attributes.flags) = (ATTRIBUTES_SIZE, 0);
    Ok(attributes)
}

/// Whether a thread runs or waits for a processor. `false` if it sleeps, is stopped, or is gone.
#[must_use]
pub fn is_runnable(thread: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{thread}/stat")) else {
        return false;
    };
    // The state follows the name, which may contain any character.
    stat.rsplit_once(')')
        .is_some_and(|(_, fields)| fields.trim_start().starts_with('R'))
}

/// A guard: the thread that made it has short time slices until the guard is dropped, on any thread.
#[derive(Debug)]
pub struct ShortSlice {
    thread: libc::pid_t,
    before: Duration,
}

impl ShortSlice {
    /// Requests slices of this length for the calling thread.
    ///
    /// # Errors
    /// As for [`set_time_slice`]; the slice is unchanged.
    pub fn new(slice: Duration) -> io::Result<Self> {
        let thread = rustix::thread::gettid().as_raw_pid();
        let before = Duration::from_nanos(get(thread)?.runtime);
        set_time_slice(slice)?;
        Ok(Self { thread, before })
    }
}

impl Drop for ShortSlice {
    fn drop(&mut self) {
        // Fails if the thread is gone.
        let _ = set_for_thread(self.thread, self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_short_until_the_guard_goes() {
        let slice = || get(0).map(|attributes| attributes.runtime);
        let Ok(before) = slice() else {
            eprintln!(
                "skipped a_slice_is_short_until_the_guard_goes: this thread is not of the fair class"
            );
            return;
        };
        let short = ShortSlice::new(SHORTEST_SLICE).unwrap();
        let during = slice().unwrap();
        drop(short);
        assert_eq!(slice().unwrap(), before);
        // A kernel that ignores the request reports the slice before.
        assert!(during == 100_000 || during == before, "{during}");
    }

    #[test]
    fn a_thread_is_runnable_unless_it_sleeps_or_is_gone() {
        let own = || rustix::thread::gettid().as_raw_pid() as u32;
        assert!(is_runnable(own()));
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tell.send(own()).unwrap();
            ended.recv().unwrap_err();
        });
        let thread = told.recv().unwrap();
        // Until it sleeps.
        while is_runnable(thread) {
            std::thread::yield_now();
        }
        drop(end);
        sleeper.join().unwrap();
        assert!(!is_runnable(thread), "it is gone");
    }

    #[test]
    fn niceness_stays() {
        std::thread::spawn(|| {
            // SAFETY: an integer; it concerns this thread only.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
            drop(ShortSlice::new(SHORTEST_SLICE).unwrap());
            assert_eq!(get(0).unwrap().nice, 5);
        })
        .join()
        .unwrap();
    }
}

//! The time slice of a thread: how soon it runs when it wakes up while others burn all processors.
//!
//! Since Linux 6.12 a thread of the fair class may ask for a shorter slice than others. Its deadline is then
//! nearer, so when it wakes up it runs before who burns; its share of the processor stays the same. Kernels
//! that know nothing of it say no, or take it for nothing.

use std::{io, time::Duration};

/// The shortest slice that the kernel grants.
pub const SHORTEST: Duration = Duration::from_micros(100);

#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of a thread of the fair class: its slice in nanoseconds; 0 is the usual one.
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

/// The calling thread, and those that it starts from now on, get slices of this length; zero is the usual one.
///
/// # Errors
/// What the kernel says, and [`io::ErrorKind::Unsupported`] for a thread that is not of the fair class.
pub fn set(slice: Duration) -> io::Result<()> {
    set_of(0, slice)
}

/// 0 is the calling thread.
fn set_of(thread: libc::pid_t, slice: Duration) -> io::Result<()> {
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
    // SAFETY: the attributes live and are as long as we say.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, to, SIZE, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let policy = attributes.policy as libc::c_int;
    if !matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // What the kernel told of itself is not to be asked for.
    (attributes.size, attributes.flags) = (SIZE, 0);
    Ok(attributes)
}

/// The thread that made this has short slices until it is dropped, on whatever thread.
#[derive(Debug)]
pub struct Short {
    thread: libc::pid_t,
    before: Duration,
}

impl Short {
    /// Asks for slices of this length for the calling thread.
    ///
    /// # Errors
    /// As [`set`]; the slice is as it was.
    pub fn new(slice: Duration) -> io::Result<Self> {
        let thread = rustix::thread::gettid().as_raw_pid();
        let before = Duration::from_nanos(get(thread)?.runtime);
        set(slice)?;
        Ok(Self { thread, before })
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        // It fails if the thread is gone.
        let _ = set_of(self.thread, self.before);
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
        let short = Short::new(SHORTEST).unwrap();
        let during = slice().unwrap();
        drop(short);
        assert_eq!(slice().unwrap(), before);
        // A kernel that grants none gives what it gave before.
        assert!(during == 100_000 || during == before, "{during}");
    }

    #[test]
    fn niceness_stays() {
        std::thread::spawn(|| {
            // SAFETY: an integer; it concerns this thread only.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
            drop(Short::new(SHORTEST).unwrap());
            assert_eq!(get(0).unwrap().nice, 5);
        })
        .join()
        .unwrap();
    }
}

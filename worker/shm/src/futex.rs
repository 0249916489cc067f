//! Futexes in memory that processes share.
//!
//! Always the non-private kind, so that a word works in whichever process maps it. Wake-ups may be
//! spurious: callers wait in a loop around their own condition.

use std::{io, ptr, sync::atomic::AtomicU32, time::Duration};

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakeup {
    /// Somebody woke the word, or the kernel woke us for no reason.
    Woken,
    /// The word was not the expected value, so that we did not sleep.
    Changed,
    /// The timeout passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Sleeps until the word is woken, if it still holds `expected`.
///
/// `timeout` is measured on the monotonic clock; `None` waits without limit.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wakeup {
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word is a live, aligned u32 and the limit is null or a live timespec; the kernel
    // only reads both.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            limit,
            ptr::null::<u32>(),
            0_u32,
        )
    };
    if result == 0 {
        return Wakeup::Woken;
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Wakeup::Changed,
        Some(libc::ETIMEDOUT) => Wakeup::TimedOut,
        // A fault is impossible for a live reference; treating it as an interrupt makes the caller look again.
        _ => Wakeup::Interrupted,
    }
}

/// Wakes at most `count` waiters of the word and returns how many there were.
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    // SAFETY: the word is a live, aligned u32; the kernel uses its address only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            count.min(i32::MAX as u32),
            ptr::null::<libc::timespec>(),
            ptr::null::<u32>(),
            0_u32,
        )
    };
    usize::try_from(result).unwrap_or(0)
}

/// Wakes all waiters of the word and returns how many there were.
pub fn wake_all(word: &AtomicU32) -> usize {
    wake(word, u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn a_changed_word_does_not_sleep() {
        assert_eq!(wait(&AtomicU32::new(1), 0, None), Wakeup::Changed);
    }

    #[test]
    fn a_wait_ends_at_its_time_out() {
        let word = AtomicU32::new(0);
        assert_eq!(
            wait(&word, 0, Some(Duration::from_millis(2))),
            Wakeup::TimedOut
        );
    }

    #[test]
    fn a_waiter_is_woken() {
        let word = Arc::new(AtomicU32::new(0));
        let waiter = thread::spawn({
            let word = Arc::clone(&word);
            move || {
                while word.load(Ordering::Acquire) == 0 {
                    wait(&word, 0, None);
                }
            }
        });
        word.store(1, Ordering::Release);
        wake_all(&word);
        waiter.join().expect("the waiter does not panic");
    }
}

//! Futexes in memory that processes share.
//!
//! They are not private, so that a word works in every process that maps it. Wakeups may be spurious, so callers must
//! wait in a loop around their own condition.

use std::{sync::atomic::AtomicU32, time::Duration};

use rustix::{
    io::Errno,
    thread::futex::{self, Flags, Timespec},
};

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakeup {
    /// Another thread woke the word, or the wakeup was spurious.
    Woken,
    /// The word was not the expected value, so the call did not sleep.
    Changed,
    /// The timeout passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Sleeps until the word is woken, if its value is still `expected`.
///
/// `timeout` is measured on the monotonic clock. `None` waits without limit.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wakeup {
    // A timeout that the kernel cannot represent is none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match futex::wait(word, Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) => Wakeup::Woken,
        Err(Errno::AGAIN) => Wakeup::Changed,
        Err(Errno::TIMEDOUT) => Wakeup::TimedOut,
        // EFAULT cannot happen for a live reference. The caller looks at the word again in any case.
        Err(_) => Wakeup::Interrupted,
    }
}

/// Wakes at most `count` waiters of the word and returns how many there were.
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    futex::wake(word, Flags::empty(), count.min(i32::MAX as u32)).unwrap_or(0)
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
    fn a_wait_ends_at_its_timeout() {
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

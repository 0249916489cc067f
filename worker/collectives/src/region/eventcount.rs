//! An eventcount: a counter on which processes sleep, and which an abort closes for good.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use rustix::thread::futex::{self, Flags};

/// A futex word in shared memory. An abort sets bit 0 for good. A member that leaves sets bit 1.
/// The other bits are the epoch, which counts notifications and wraps around. All share one word,
/// because the kernel compares the whole word before it puts a waiter to sleep. A waiter therefore
/// cannot miss any of these events.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct EventCount(AtomicU32);

const ABORTED: u32 = 1;
const LEFT: u32 = 2;
const CLOSED: u32 = ABORTED | LEFT;
/// Not `PRIVATE`: waiters and notifiers are in different processes.
const SHARED: Flags = Flags::empty();
/// Wakes every waiter. The kernel reads the count as an `int`.
const ALL: u32 = i32::MAX as u32;
pub(crate) const EPOCH_STEP: u32 = 4;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Notified,
    /// The round was aborted, or a member left.
    Closed,
    TimedOut,
}

impl EventCount {
    /// The current epoch, to be passed to [`EventCount::wait`].
    pub(crate) fn epoch(&self) -> u32 {
        self.0.load(Ordering::Acquire) & !CLOSED
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire) & ABORTED != 0
    }

    /// Whether no further notification can come: the round was aborted, or a member left.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Advances the epoch and wakes all waiters. What this process wrote before is visible to them
    /// (release here, acquire in [`EventCount::wait`]).
    pub(crate) fn notify(&self) {
        self.0.fetch_add(EPOCH_STEP, Ordering::Release);
        self.wake_all();
    }

    /// Sets the abort bit and wakes all waiters.
    pub(crate) fn abort(&self) {
        self.0.fetch_or(ABORTED, Ordering::AcqRel);
        self.wake_all();
    }

    /// Marks that a member left and wakes all waiters, since that member will not arrive where they
    /// wait.
    pub(crate) fn leave(&self) {
        self.0.fetch_or(LEFT, Ordering::AcqRel);
        self.wake_all();
    }

    /// Waits until the epoch differs from `seen`. A notification takes precedence over an abort:
    /// what all ranks had reached before the abort is complete.
    ///
    /// Checks the word `spins` times before the first sleep. `spins` is zero where ranks outnumber
    /// processors.
    pub(crate) fn wait(&self, seen: u32, spins: u32, deadline: Option<Instant>) -> Wake {
        let mut left = spins;
        loop {
            let now = self.0.load(Ordering::Acquire);
            if now & !CLOSED != seen {
                return Wake::Notified;
            }
            if now & CLOSED != 0 {
                return Wake::Closed;
            }
            if left > 0 {
                left -= 1;
                std::hint::spin_loop();
                continue;
            }
            let timeout = match deadline {
                None => None,
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    None => return Wake::TimedOut,
                    // Fails only for a time beyond the kernel's range, which no deadline reaches.
                    Some(left) => left.try_into().ok(),
                },
            };
            // Every outcome (woken, changed before, interrupted, timed out) leads to another check.
            let _ = futex::wait(&self.0, SHARED, now, timeout.as_ref());
        }
    }

    fn wake_all(&self) {
        // Cannot fail: the word is mapped and aligned.
        let _ = futex::wake(&self.0, SHARED, ALL);
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    #[test]
    fn the_epoch_wraps_without_touching_the_abort_bit() {
        let event = EventCount(AtomicU32::new(u32::MAX - CLOSED));
        event.notify();
        assert!(!event.is_aborted());
        assert_eq!(event.epoch(), 0);
        event.abort();
        event.notify();
        assert!(event.is_aborted());
    }

    #[test]
    fn a_notification_before_an_abort_counts() {
        let event = EventCount(AtomicU32::new(0));
        event.notify();
        event.abort();
        assert_eq!(event.wait(0, 0, None), Wake::Notified);
        assert_eq!(event.wait(EPOCH_STEP, 0, None), Wake::Closed);
    }

    #[test]
    fn a_leave_is_no_abort() {
        let event = EventCount(AtomicU32::new(0));
        event.leave();
        assert!(event.is_closed() && !event.is_aborted());
        assert_eq!(event.wait(0, 0, None), Wake::Closed);
    }

    #[test]
    fn sleepers_are_woken_and_deadlines_kept() {
        let event = EventCount(AtomicU32::new(0));
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(event.wait(0, 0, Some(soon)), Wake::TimedOut);
        assert!(Instant::now() >= soon);
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| event.wait(0, 0, None)))
                .collect();
            event.abort();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Wake::Closed);
            }
        });
    }
}

//! A counter on which processes sleep, and which an abort rings for good.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use rustix::thread::futex::{self, Flags};

/// A futex word in shared memory: bit 0 is set once and for ever by an abort, bit 1 when a member
/// leaves, the other bits count rings and wrap around. All are one word so that nobody can fall asleep
/// between looking at the one and at the other: the kernel compares the whole word before it puts a
/// waiter to sleep.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Bell(AtomicU32);

const ABORTED: u32 = 1;
const LEFT: u32 = 2;
const OVER: u32 = ABORTED | LEFT;
/// Not `PRIVATE`: the waiters and the rings are in different processes.
const SHARED: Flags = Flags::empty();
/// Every waiter. The kernel reads the count as an `int`.
const ALL: u32 = i32::MAX as u32;
pub(crate) const RING: u32 = 4;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Rung,
    /// Aborted, or a member left.
    Over,
    TimedOut,
}

impl Bell {
    /// The count of rings now, to be given to [`Bell::wait`].
    pub(crate) fn rings(&self) -> u32 {
        self.0.load(Ordering::Acquire) & !OVER
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire) & ABORTED != 0
    }

    /// Whether no further ring can come: aborted, or a member left.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) & OVER != 0
    }

    /// Lets all waiters go. What this process wrote before is visible to them (release here, acquire
    /// in [`Bell::wait`]).
    pub(crate) fn ring(&self) {
        self.0.fetch_add(RING, Ordering::Release);
        self.wake_all();
    }

    /// Sets the abort bit and lets all waiters go.
    pub(crate) fn abort(&self) {
        self.0.fetch_or(ABORTED, Ordering::AcqRel);
        self.wake_all();
    }

    /// Lets all waiters go, since a member left: it will not come to where they wait.
    pub(crate) fn leave(&self) {
        self.0.fetch_or(LEFT, Ordering::AcqRel);
        self.wake_all();
    }

    /// Waits until the count differs from `seen`. A ring counts more than an abort: what all ranks had
    /// reached before an abort came is still complete.
    ///
    /// `spins` looks are taken before the first sleep; zero where ranks outnumber the processors.
    pub(crate) fn wait(&self, seen: u32, spins: u32, deadline: Option<Instant>) -> Wake {
        let mut left = spins;
        loop {
            let now = self.0.load(Ordering::Acquire);
            if now & !OVER != seen {
                return Wake::Rung;
            }
            if now & OVER != 0 {
                return Wake::Over;
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
                    // Fails only for a time beyond the kernel's range, which no deadline is.
                    Some(left) => left.try_into().ok(),
                },
            };
            // Each outcome (woken, changed before, interrupted, timed out) is handled by looking again.
            let _ = futex::wait(&self.0, SHARED, now, timeout.as_ref());
        }
    }

    fn wake_all(&self) {
        // Fails for no word that is mapped and aligned.
        let _ = futex::wake(&self.0, SHARED, ALL);
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    #[test]
    fn the_count_wraps_without_touching_the_abort_bit() {
        let bell = Bell(AtomicU32::new(u32::MAX - OVER));
        bell.ring();
        assert!(!bell.is_aborted());
        assert_eq!(bell.rings(), 0);
        bell.abort();
        bell.ring();
        assert!(bell.is_aborted());
    }

    #[test]
    fn a_ring_before_an_abort_counts() {
        let bell = Bell(AtomicU32::new(0));
        bell.ring();
        bell.abort();
        assert_eq!(bell.wait(0, 0, None), Wake::Rung);
        assert_eq!(bell.wait(RING, 0, None), Wake::Over);
    }

    #[test]
    fn a_leave_is_no_abort() {
        let bell = Bell(AtomicU32::new(0));
        bell.leave();
        assert!(bell.is_over() && !bell.is_aborted());
        assert_eq!(bell.wait(0, 0, None), Wake::Over);
    }

    #[test]
    fn sleepers_are_woken_and_deadlines_kept() {
        let bell = Bell(AtomicU32::new(0));
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(bell.wait(0, 0, Some(soon)), Wake::TimedOut);
        assert!(Instant::now() >= soon);
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| bell.wait(0, 0, None)))
                .collect();
            bell.abort();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Wake::Over);
            }
        });
    }
}

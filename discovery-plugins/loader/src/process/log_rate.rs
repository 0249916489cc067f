//! How many lines of a plugin are logged. Pure: the caller passes the time.

use std::time::{Duration, Instant};

/// The maximum of lines in a window.
const MAX_LINES: u32 = 100;
/// The minimum length of a window.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// The maximum length of a window.
const MAX_WINDOW: Duration = Duration::from_secs(10);

/// A limit of the rate of lines: 100 in a second at first. It halves after each window with more lines, down to one line in
/// ten seconds. It doubles after each window with fewer, or with at most one line a second, and with each quiet second.
#[derive(Debug)]
pub(super) struct LogRate {
    began: Instant,
    window: Duration,
    limit: u32,
    /// Lines in this window, those that are not logged included.
    lines: u64,
}

impl LogRate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            window: MIN_WINDOW,
            limit: MAX_LINES,
            lines: 0,
        }
    }

    /// Begins a new window if the current one is over. Returns how many of its lines were not logged, if any.
    pub(super) fn next_window(&mut self, now: Instant) -> Option<u64> {
        let quiet = now
            .saturating_duration_since(self.began)
            .checked_sub(self.window)?;
        let hidden = self.lines.saturating_sub(u64::from(self.limit));
        if hidden == 0 || self.lines <= self.window.as_secs() {
            self.recover(1);
        } else if self.limit > 1 {
            self.limit /= 2;
        } else {
            self.window = (2 * self.window).min(MAX_WINDOW);
        }
        self.recover(quiet.as_secs());
        (self.began, self.lines) = (now, 0);
        (hidden > 0).then_some(hidden)
    }

    /// Raises the limit after a number of seconds that did not exceed it.
    fn recover(&mut self, seconds: u64) {
        if seconds > 0 {
            self.window = MIN_WINDOW;
        }
        for _ in 0..seconds.min(u64::from(MAX_LINES.ilog2()) + 1) {
            self.limit = (2 * self.limit).min(MAX_LINES);
        }
    }

    /// Counts a line. Returns whether it is logged.
    pub(super) fn take(&mut self) -> bool {
        self.lines += 1;
        self.lines <= u64::from(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes `lines` lines, evenly spread over `seconds`. Returns how many are logged.
    fn logged(rate: &mut LogRate, now: &mut Instant, seconds: u32, lines: u32) -> u32 {
        let pause = Duration::from_secs(u64::from(seconds)) / lines;
        let mut count = 0;
        for _ in 0..lines {
            *now += pause;
            rate.next_window(*now);
            count += u32::from(rate.take());
        }
        count
    }

    #[test]
    fn a_chatty_plugin_is_heard_less_and_less() {
        const DAY: u32 = 24 * 60 * 60;
        let mut now = Instant::now();
        let mut rate = LogRate::new(now);
        let count = logged(&mut rate, &mut now, DAY, DAY * 200);
        // A line has at most 2,000 bytes, so this is less than 20 MB.
        assert!((DAY / 11..10_000).contains(&count), "{count}");
    }

    #[test]
    fn lines_within_the_limit_are_all_logged() {
        let mut now = Instant::now();
        let mut rate = LogRate::new(now);
        assert_eq!(logged(&mut rate, &mut now, 100, 90 * 100), 90 * 100);
    }

    #[test]
    fn lines_that_are_not_logged_are_counted_once() {
        let began = Instant::now();
        let mut rate = LogRate::new(began);
        assert_eq!((0..300).filter(|_| rate.take()).count(), 100);
        assert_eq!(rate.next_window(began + MIN_WINDOW / 2), None);
        assert_eq!(rate.next_window(began + MIN_WINDOW), Some(200));
        assert_eq!(rate.next_window(began + 2 * MIN_WINDOW), None);
    }

    #[test]
    fn a_plugin_that_calms_down_is_heard_again() {
        let mut now = Instant::now();
        let mut rate = LogRate::new(now);
        logged(&mut rate, &mut now, 1000, 100_000);
        now += Duration::from_secs(30);
        rate.next_window(now);
        assert_eq!((0..300).filter(|_| rate.take()).count(), 100);
    }
}

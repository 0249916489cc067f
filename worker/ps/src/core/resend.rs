//! Resends: what was sent and not acknowledged, and what was received already.
//!
//! # Invariants
//! - PS2 A number of a sender is delivered once, however often it arrives.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The numbers that were received from one sender. Numbers begin at 1.
#[derive(Debug, Default)]
pub(crate) struct DuplicateFilter {
    /// All numbers up to this one were received.
    floor: u64,
    /// Received numbers above it.
    above: BTreeSet<u64>,
}

impl DuplicateFilter {
    /// Notes a number. Returns whether it is new.
    pub(crate) fn admit(&mut self, sequence: u64) -> bool {
        if sequence <= self.floor || !self.above.insert(sequence) {
            return false;
        }
        while self.above.remove(&(self.floor + 1)) {
            self.floor += 1;
        }
        true
    }
}

/// What was sent to one receiver and not acknowledged. Times are durations since a start that the caller chooses.
#[derive(Debug)]
pub(crate) struct Unacknowledged<M> {
    last: u64,
    sent: BTreeMap<u64, Sent<M>>,
}

#[derive(Debug)]
struct Sent<M> {
    message: M,
    due: Duration,
    attempts: u32,
}

impl<M> Default for Unacknowledged<M> {
    fn default() -> Self {
        Self {
            last: 0,
            sent: BTreeMap::new(),
        }
    }
}

/// A resend waits at most so many times longer than the first one.
const MAX_BACKOFF: u32 = 8;

impl<M: Clone> Unacknowledged<M> {
    /// The number of the next message.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Keeps a message that is sent now.
    pub(crate) fn keep(&mut self, sequence: u64, message: M, now: Duration, timeout: Duration) {
        let sent = Sent {
            message,
            due: now + timeout,
            attempts: 1,
        };
        self.sent.insert(sequence, sent);
    }

    /// Forgets a message that has arrived.
    pub(crate) fn acknowledge(&mut self, sequence: u64) {
        self.sent.remove(&sequence);
    }

    /// The messages to send again now, in order. Each waits longer than the time before.
    pub(crate) fn due(&mut self, now: Duration, timeout: Duration) -> Vec<M> {
        let due = self.sent.values_mut().filter(|sent| sent.due <= now);
        due.map(|sent| {
            sent.due = now + timeout * (1 << sent.attempts.min(3)).min(MAX_BACKOFF);
            sent.attempts += 1;
            sent.message.clone()
        })
        .collect()
    }

    /// When the next message is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.sent.values().map(|sent| sent.due).min()
    }

    /// Whether everything has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_is_not_acknowledged_comes_again_later_and_later() {
        let mut sent = Unacknowledged::default();
        for message in ["a", "b"] {
            let sequence = sent.next_sequence();
            sent.keep(sequence, message, at(0), TIMEOUT);
        }
        assert_eq!(sent.next_due(), Some(at(100)));
        assert!(sent.due(at(99), TIMEOUT).is_empty());
        sent.acknowledge(1);
        assert_eq!(sent.due(at(100), TIMEOUT), ["b"]);
        assert!(sent.due(at(299), TIMEOUT).is_empty());
        assert_eq!(sent.due(at(300), TIMEOUT), ["b"]);
        assert!(sent.due(at(699), TIMEOUT).is_empty());
        assert_eq!(sent.due(at(700), TIMEOUT), ["b"]);
        assert_eq!(sent.next_due(), Some(at(1500)));
        assert_eq!(sent.due(at(1500), TIMEOUT), ["b"]);
        assert_eq!(sent.next_due(), Some(at(2300)));
        sent.acknowledge(2);
        assert!(sent.is_empty());
        assert_eq!(sent.next_due(), None);
    }

    proptest! {
        #[test]
        fn the_filter_is_a_set(numbers in vec(1u64..50, 0..200)) {
            let mut filter = DuplicateFilter::default();
            let mut seen = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(filter.admit(number), seen.insert(number));
            }
            // It keeps no number below the lowest one that is missing.
            let missing = (1..).find(|number| !seen.contains(number)).unwrap();
            prop_assert!(filter.above.iter().all(|&number| number > missing));
        }

        /// A channel that loses, repeats and reorders: everything arrives once.
        #[test]
        fn everything_arrives_once(dice in vec(0u8..100, 1..400), count in 1u64..20) {
            let mut sent = Unacknowledged::default();
            let mut filter = DuplicateFilter::default();
            let mut delivered = Vec::new();
            let mut wire = Vec::new();
            for _ in 0..count {
                let sequence = sent.next_sequence();
                sent.keep(sequence, sequence, Duration::ZERO, TIMEOUT);
                wire.push(sequence);
            }
            let mut now = Duration::ZERO;
            let lossy = dice.len();
            let mut dice = dice.into_iter();
            for turn in 0.. {
                for sequence in std::mem::take(&mut wire) {
                    let die = dice.next().unwrap_or(100);
                    // Lost on its way.
                    if die < 20 { continue; }
                    if filter.admit(sequence) { delivered.push(sequence); }
                    // The acknowledgement is lost.
                    if die < 40 { continue; }
                    sent.acknowledge(sequence);
                }
                if sent.is_empty() { break; }
                prop_assert!(turn < lossy * 2 + 10);
                now = sent.next_due().unwrap();
                wire = sent.due(now, TIMEOUT);
            }
            let _ = now;
            delivered.sort_unstable();
            prop_assert_eq!(delivered, (1..=count).collect::<Vec<_>>());
        }
    }
}

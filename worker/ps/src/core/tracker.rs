//! Requests in flight: how many answers each still waits for, and what became of it.
//!
//! # Invariants
//! - PS1 A request is completed once: one call of [`Tracker::answered`] or [`Tracker::fail`] returns
//!   [`Outcome::Completed`], and no later one does.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::node::NodeId;

/// The number of a request of one customer. The first one is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// What an answer means for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Further answers are missing.
    Pending,
    /// It was the last one.
    Completed,
    /// The request is completed already, or this node owes no answer to it.
    Unexpected,
}

/// The requests of one customer. `E` is why a request failed.
#[derive(Debug)]
pub(crate) struct Tracker<E> {
    next: u64,
    /// The nodes that owe an answer.
    open: BTreeMap<Timestamp, BTreeSet<NodeId>>,
    failed: BTreeMap<Timestamp, E>,
    /// A time, and the next request then: see [`Tracker::overdue`].
    watched: Option<(Duration, Timestamp)>,
}

/// Failures that are kept for a caller that has not asked yet. Older ones are forgotten.
const MAX_FAILED: usize = 1024;

impl<E> Default for Tracker<E> {
    fn default() -> Self {
        Self {
            next: 0,
            open: BTreeMap::new(),
            failed: BTreeMap::new(),
            watched: None,
        }
    }
}

impl<E: Clone> Tracker<E> {
    /// Begins a request to these nodes. A request to none is completed at once.
    pub(crate) fn begin(&mut self, to: impl IntoIterator<Item = NodeId>) -> Timestamp {
        let timestamp = Timestamp(self.next);
        self.next += 1;
        let to: BTreeSet<_> = to.into_iter().collect();
        if !to.is_empty() {
            self.open.insert(timestamp, to);
        }
        timestamp
    }

    /// Notes the answer of a node.
    pub(crate) fn answered(&mut self, timestamp: Timestamp, from: NodeId) -> Outcome {
        let Some(missing) = self.open.get_mut(&timestamp) else {
            return Outcome::Unexpected;
        };
        if !missing.remove(&from) {
            return Outcome::Unexpected;
        }
        if !missing.is_empty() {
            return Outcome::Pending;
        }
        self.open.remove(&timestamp);
        Outcome::Completed
    }

    /// Completes a request, whoever owes an answer.
    pub(crate) fn complete(&mut self, timestamp: Timestamp) -> Outcome {
        match self.open.remove(&timestamp) {
            Some(_) => Outcome::Completed,
            None => Outcome::Unexpected,
        }
    }

    /// Whether the request still waits for an answer of the node.
    pub(crate) fn expects(&self, timestamp: Timestamp, from: NodeId) -> bool {
        self.open
            .get(&timestamp)
            .is_some_and(|missing| missing.contains(&from))
    }

    /// Completes a request with an error. Answers that come later are unexpected.
    pub(crate) fn fail(&mut self, timestamp: Timestamp, error: E) -> Outcome {
        if self.open.remove(&timestamp).is_none() {
            return Outcome::Unexpected;
        }
        if self.failed.len() == MAX_FAILED {
            self.failed.pop_first();
        }
        self.failed.insert(timestamp, error);
        Outcome::Completed
    }

    /// The requests that wait for an answer of the node, in ascending order.
    pub(crate) fn waiting_for(&self, node: NodeId) -> Vec<Timestamp> {
        let open = self.open.iter();
        open.filter(|(_, missing)| missing.contains(&node))
            .map(|(&timestamp, _)| timestamp)
            .collect()
    }

    /// The nodes that owe an answer.
    pub(crate) fn missing(&self, timestamp: Timestamp) -> Vec<NodeId> {
        let missing = self.open.get(&timestamp).into_iter().flatten();
        missing.copied().collect()
    }

    /// How a request ended: `None` while it is in flight. A request that never began counts as ended.
    pub(crate) fn result(&self, timestamp: Timestamp) -> Option<Result<(), E>> {
        if self.open.contains_key(&timestamp) {
            return None;
        }
        Some(match self.failed.get(&timestamp) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        })
    }

    /// Whether the request has begun.
    pub(crate) fn has_begun(&self, timestamp: Timestamp) -> bool {
        timestamp.0 < self.next
    }

    /// The oldest request in flight.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.open.keys().next().copied()
    }

    /// The requests that are in flight for longer than `limit`, and for twice as long at most if this is called again and again.
    pub(crate) fn overdue(&mut self, now: Duration, limit: Duration) -> Vec<Timestamp> {
        let Some(oldest) = self.oldest() else {
            self.watched = None;
            return Vec::new();
        };
        match self.watched {
            Some((since, next)) if oldest < next => {
                if now < since + limit {
                    return Vec::new();
                }
                self.watched = None;
                self.open
                    .range(..next)
                    .map(|(&timestamp, _)| timestamp)
                    .collect()
            }
            _ => {
                self.watched = Some((now, self.next()));
                Vec::new()
            }
        }
    }

    /// The number of the next request.
    pub(crate) fn next(&self) -> Timestamp {
        Timestamp(self.next)
    }

    /// Number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn a_request_to_nobody_is_completed() {
        let mut tracker = Tracker::<()>::default();
        let timestamp = tracker.begin([]);
        assert_eq!(tracker.result(timestamp), Some(Ok(())));
    }

    #[test]
    fn a_failure_is_kept_and_later_answers_are_unexpected() {
        let mut tracker = Tracker::default();
        let (a, b) = (NodeId::server(0), NodeId::server(1));
        let timestamp = tracker.begin([a, b]);
        assert_eq!(tracker.answered(timestamp, a), Outcome::Pending);
        assert_eq!(tracker.waiting_for(a), []);
        assert_eq!(tracker.waiting_for(b), [timestamp]);
        assert_eq!(tracker.fail(timestamp, "gone"), Outcome::Completed);
        assert_eq!(tracker.answered(timestamp, b), Outcome::Unexpected);
        assert_eq!(tracker.fail(timestamp, "again"), Outcome::Unexpected);
        assert_eq!(tracker.result(timestamp), Some(Err("gone")));
    }

    #[test]
    fn requests_that_stay_in_flight_are_overdue() {
        let at = Duration::from_secs;
        let mut tracker = Tracker::<()>::default();
        let node = NodeId::server(0);
        assert_eq!(tracker.overdue(at(0), at(5)), []);
        let first = tracker.begin([node]);
        let second = tracker.begin([node]);
        assert_eq!(tracker.overdue(at(1), at(5)), []);
        let third = tracker.begin([node]);
        tracker.answered(first, node);
        assert_eq!(tracker.overdue(at(5), at(5)), []);
        assert_eq!(
            tracker.overdue(at(6), at(5)),
            [second],
            "not yet the third one"
        );
        tracker.answered(second, node);
        assert_eq!(tracker.overdue(at(7), at(5)), []);
        tracker.answered(third, node);
        let fourth = tracker.begin([node]);
        assert_eq!(tracker.overdue(at(12), at(5)), [], "it has just begun");
        assert_eq!(tracker.overdue(at(17), at(5)), [fourth]);
    }

    proptest! {
        /// Any answers in any order, some repeated, some failures: each request is completed at most once, and once
        /// exactly if all its nodes have answered.
        #[test]
        fn completed_exactly_once(
            requests in vec(1u32..4, 1..8),
            events in vec((0usize..8, 0u32..5, any::<bool>()), 0..100),
        ) {
            let mut tracker = Tracker::default();
            let begun: Vec<_> = requests
                .iter()
                .map(|&count| tracker.begin((0..count).map(NodeId::server)))
                .collect();
            let mut completed = vec![0; begun.len()];
            let mut answered = vec![BTreeSet::new(); begun.len()];
            for (request, from, fails) in events {
                let request = request % begun.len();
                let outcome = if fails && from == 4 {
                    tracker.fail(begun[request], ())
                } else {
                    answered[request].insert(from);
                    tracker.answered(begun[request], NodeId::server(from))
                };
                if outcome == Outcome::Completed {
                    completed[request] += 1;
                    prop_assert!(tracker.result(begun[request]).is_some());
                }
                prop_assert!(completed[request] <= 1);
                prop_assert_eq!(completed[request] == 1, tracker.result(begun[request]).is_some());
            }
            for (request, &count) in requests.iter().enumerate() {
                if (0..count).all(|from| answered[request].contains(&from)) {
                    prop_assert_eq!(completed[request], 1);
                }
            }
        }
    }
}

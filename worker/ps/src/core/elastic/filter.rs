//! Which pushes a range has applied, so that a replay is not applied again.
//!
//! # Invariants
//! - PE1 An identity is new once, to a filter or by any copy of it, as long as its worker waits for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::node::NodeId;

/// A request of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Identity {
    pub(crate) worker: NodeId,
    /// Which `KvWorker` of the process. Numbers are never used again.
    pub(crate) session: u32,
    pub(crate) timestamp: u64,
}

/// The requests of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Window {
    /// The worker waits for no request below it.
    floor: u64,
    applied: BTreeSet<u64>,
}

/// The pushes that a range has applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    sessions: BTreeMap<(NodeId, u32), Window>,
}

impl Filter {
    /// Whether a push was not noted yet, and its worker may still wait for it.
    pub(crate) fn is_new(&self, identity: Identity) -> bool {
        let window = self.sessions.get(&(identity.worker, identity.session));
        window.is_none_or(|window| {
            identity.timestamp >= window.floor && !window.applied.contains(&identity.timestamp)
        })
    }

    /// Notes a push. `floor` is the lowest timestamp that the worker waits for: below it nothing is kept.
    pub(crate) fn note(&mut self, identity: Identity, floor: u64) {
        let session = (identity.worker, identity.session);
        let window = self.sessions.entry(session).or_default();
        if floor > window.floor {
            window.floor = floor;
            window.applied = window.applied.split_off(&floor);
        }
        if identity.timestamp >= window.floor {
            window.applied.insert(identity.timestamp);
        }
    }

    /// The filter as words.
    pub(crate) fn words(&self) -> Vec<u64> {
        let mut words = Vec::new();
        for (&(worker, session), window) in &self.sessions {
            let node = u64::from(worker.0) << 32 | u64::from(session);
            words.extend([node, window.floor, window.applied.len() as u64]);
            words.extend(&window.applied);
        }
        words
    }

    /// The filter in these words. `None` if they are none.
    pub(crate) fn from_words(words: &[u64]) -> Option<Self> {
        let mut filter = Self::default();
        let mut rest = words;
        while let [node, floor, count, more @ ..] = rest {
            let count = usize::try_from(*count).ok().filter(|n| *n <= more.len())?;
            let window = Window {
                floor: *floor,
                applied: more[..count].iter().copied().collect(),
            };
            let session = (NodeId((node >> 32) as u32), *node as u32);
            filter.sessions.insert(session, window);
            rest = &more[count..];
        }
        rest.is_empty().then_some(filter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn identity(worker: u32, session: u32, timestamp: u64) -> Identity {
        Identity {
            worker: NodeId::worker(worker),
            session,
            timestamp,
        }
    }

    #[test]
    fn below_the_floor_nothing_is_kept_and_nothing_is_new() {
        let mut filter = Filter::default();
        let mut admit = |identity, floor| {
            let new = filter.is_new(identity);
            filter.note(identity, floor);
            new
        };
        assert!(admit(identity(0, 0, 3), 0));
        assert!(!admit(identity(0, 0, 3), 0));
        assert!(admit(identity(0, 1, 3), 0));
        assert!(admit(identity(0, 0, 9), 5));
        assert!(!admit(identity(0, 0, 3), 0));
        assert!(!admit(identity(0, 0, 4), 0));
        assert_eq!(filter.words().len(), 8);
    }

    proptest! {
        #[test]
        fn words_are_the_filter(pushes in vec((0u32..3, 0u32..3, 0u64..20, 0u64..10), 0..60)) {
            let mut filter = Filter::default();
            for (worker, session, timestamp, floor) in pushes {
                filter.note(identity(worker, session, timestamp), floor);
            }
            prop_assert_eq!(Filter::from_words(&filter.words()), Some(filter));
        }

        #[test]
        fn any_words_are_a_filter_or_not(words in vec(0u64..6, 0..40)) {
            let _ = Filter::from_words(&words);
        }
    }
}

//! Requests that wait for keys, in the order of their arrival, and their timeouts.
//!
//! A wait watches one missing key at a time. When that key arrives, the other keys are checked. So a new key costs only
//! the waits that watch it, and a wait for many keys is not checked for each of them.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::Round;

use super::{Client, Space, contents::Condition};
use crate::Time;

/// A request: its client and its number.
pub(super) type Asked = (Client, u64);

/// The answer once all keys are present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// The value of the one key.
    One,
    /// All values.
    All,
    /// Only that the keys are present.
    Presence,
    /// The first element of the queue of the one key, which it takes.
    Element,
}

impl Wanted {
    /// What the request needs of each key.
    pub(super) fn condition(self) -> Condition {
        match self {
            Self::One | Self::All => Condition::Value,
            Self::Presence => Condition::Either,
            Self::Element => Condition::Element,
        }
    }
}

/// What a waiting request watches.
pub(super) type Watched = (Space, String, Condition);

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) client: Client,
    pub(super) number: u64,
    pub(super) space: Space,
    /// The worker can read staged values.
    pub(super) reads_staged: bool,
    /// The round, if the keys are those of a round.
    pub(super) round: Option<Round>,
    pub(super) keys: Vec<String>,
    pub(super) wanted: Wanted,
    pub(super) until: Time,
    /// Smaller than that of each request that has arrived later.
    pub(super) arrival: u64,
    /// The index of the key that it watches.
    pub(super) watched: usize,
}

impl Wait {
    fn asked(&self) -> Asked {
        (self.client, self.number)
    }

    fn bytes(&self) -> usize {
        self.keys.iter().map(String::len).sum()
    }

    fn watched(&self) -> Watched {
        let key = self.keys[self.watched].clone();
        (self.space, key, self.wanted.condition())
    }
}

/// The waiting requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    all: BTreeMap<Asked, Wait>,
    watchers: BTreeMap<Watched, BTreeSet<(u64, Asked)>>,
    deadlines: BTreeSet<(Time, Asked)>,
    bytes: usize,
    /// The number of the last arrival.
    arrivals: u64,
}

impl Waits {
    /// Numbers a request that has arrived.
    pub(super) fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// The number of waiting requests of a worker.
    pub(super) fn of(&self, client: Client) -> usize {
        self.all.range((client, 0)..=(client, u64::MAX)).count()
    }

    pub(super) fn add(&mut self, wait: Wait) {
        let watchers = self.watchers.entry(wait.watched()).or_default();
        watchers.insert((wait.arrival, wait.asked()));
        self.deadlines.insert((wait.until, wait.asked()));
        self.bytes += wait.bytes();
        self.all.insert(wait.asked(), wait);
    }

    fn take(&mut self, asked: Asked) -> Option<Wait> {
        let wait = self.all.remove(&asked)?;
        let watched = wait.watched();
        if let Some(watchers) = self.watchers.get_mut(&watched) {
            watchers.remove(&(wait.arrival, asked));
            if watchers.is_empty() {
                self.watchers.remove(&watched);
            }
        }
        self.deadlines.remove(&(wait.until, asked));
        self.bytes -= wait.bytes();
        Some(wait)
    }

    /// Removes and gives all requests that watch a key. The caller adds those again that still miss a key.
    pub(super) fn take_watchers(&mut self, watched: &Watched) -> Vec<Wait> {
        let watchers = self.watchers.get(watched).cloned().unwrap_or_default();
        let taken = watchers
            .into_iter()
            .filter_map(|(_, asked)| self.take(asked));
        taken.collect()
    }

    /// Removes and gives the request that has watched a key for longest.
    pub(super) fn take_first_watcher(&mut self, watched: &Watched) -> Option<Wait> {
        let (_, asked) = *self.watchers.get(watched)?.first()?;
        self.take(asked)
    }

    /// Removes and gives one wait whose timeout has passed.
    pub(super) fn take_overdue(&mut self, now: Time) -> Option<Wait> {
        let (until, asked) = *self.deadlines.first()?;
        if until > now {
            return None;
        }
        self.take(asked)
    }

    /// Removes and gives all waits for keys of the round.
    pub(super) fn take_round(&mut self) -> Vec<Wait> {
        let of_round = |wait: &&Wait| wait.space == Space::Round;
        let asked: Vec<_> = self
            .all
            .values()
            .filter(of_round)
            .map(Wait::asked)
            .collect();
        asked
            .into_iter()
            .filter_map(|asked| self.take(asked))
            .collect()
    }

    pub(super) fn forget(&mut self, asked: Asked) {
        self.take(asked);
    }

    pub(super) fn left(&mut self, client: Client) {
        let all = self.all.range((client, 0)..=(client, u64::MAX));
        let asked: Vec<_> = all.map(|(asked, _)| *asked).collect();
        asked.into_iter().for_each(|asked| self.forget(asked));
    }
}

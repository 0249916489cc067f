//! Snapshots of all values: which servers have saved what, and when a snapshot is complete.
//!
//! The tail of each range saves it, key by key with all that belongs to a key, while it goes on to serve. So a snapshot has all pushes
//! that were acknowledged before it began, none that began after it ended, and of those between some.
//!
//! # Invariants
//! - PS8 A snapshot is complete if and only if its ranges are all keys, each once. Ranges may move meanwhile: then those that now serve
//!   what is missing are asked for it. What was saved stays valid, since the snapshot had begun before.

use std::{
    collections::BTreeSet,
    mem::{Discriminant, discriminant},
};

use serde::{Deserialize, Serialize};

use super::{
    map::App,
    mutant::{Mutant, planted},
};
use crate::core::{
    node::NodeId,
    optimizer::{Optimizer, Rule},
    ranges::KeyRange,
};

/// How often servers are asked for what is missing since ranges have moved.
const ATTEMPTS: u32 = 20;

/// The saved values of a range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SavedRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The name of the file. Empty if there are no keys.
    pub(crate) file: String,
    pub(crate) bytes: u64,
}

impl SavedRange {
    pub(crate) fn keys(&self) -> KeyRange {
        KeyRange {
            first: self.first,
            last: self.last,
        }
    }
}

/// A complete snapshot, as servers begin with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) number: u64,
    pub(crate) apps: Vec<App>,
}

impl Origin {
    /// Whether servers with these apps can go on with it: with the same types of values, and optimizers that keep the same. Numbers of an
    /// optimizer may differ.
    pub(crate) fn fits(&self, apps: &[App]) -> bool {
        let kinds = |apps: &[App]| -> Vec<_> {
            let kind = |app: &App| (app.app, app.dtype, rule_of(app));
            apps.iter().map(kind).collect()
        };
        kinds(apps) == kinds(&self.apps)
    }
}

/// The kind of the optimizer of an app; none for sums.
fn rule_of(app: &App) -> Option<Discriminant<Rule>> {
    let optimizer: Option<Optimizer> = serde_json::from_str(&app.rule).ok();
    optimizer.map(|optimizer| discriminant(&optimizer.rule))
}

/// Whether these ranges are all keys, each once. They are sorted.
pub(crate) fn is_complete(ranges: &[SavedRange]) -> bool {
    let ordered = ranges.windows(2).all(|pair| pair[0].last < pair[1].first);
    ordered && ranges.iter().all(|range| range.first <= range.last) && gaps(ranges).is_empty()
}

/// The keys that these ranges do not have. They are sorted.
fn gaps(ranges: &[SavedRange]) -> Vec<KeyRange> {
    let mut gaps = Vec::new();
    let mut next = Some(0);
    for range in ranges {
        let Some(first) = next else { break };
        if first < range.first {
            let last = range.first - 1;
            gaps.push(KeyRange { first, last });
        }
        if range.last >= first {
            next = range.last.checked_add(1);
        }
    }
    let last = u64::MAX;
    gaps.extend(next.map(|first| KeyRange { first, last }));
    gaps
}

/// Leaves out ranges that are parts of others: two servers may have saved a range before and after it was split.
fn without_parts(mut ranges: Vec<SavedRange>) -> Vec<SavedRange> {
    ranges.sort_by_key(|range| (range.first, std::cmp::Reverse(range.last)));
    let mut kept: Vec<SavedRange> = Vec::new();
    for range in ranges {
        if kept.last().is_none_or(|before| before.last < range.first) {
            kept.push(range);
        }
    }
    kept
}

/// A snapshot that is being taken.
#[derive(Debug)]
pub(crate) struct Saving {
    pub(crate) number: u64,
    /// The number of this attempt among all that the coordinator has begun.
    pub(crate) ticket: u64,
    attempts: u32,
    waiting: BTreeSet<NodeId>,
    ranges: Vec<SavedRange>,
}

/// How it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Servers are awaited.
    Waits,
    Complete(Vec<SavedRange>),
    /// Ranges have moved, and these keys are missing.
    Lacks(Vec<KeyRange>),
    Failed(String),
}

impl Saving {
    /// These servers are told to save what they serve.
    pub(crate) fn begin(number: u64, ticket: u64, servers: BTreeSet<NodeId>) -> Self {
        Self {
            number,
            ticket,
            attempts: 1,
            waiting: servers,
            ranges: Vec::new(),
        }
    }

    /// These servers are told to save what is missing.
    pub(crate) fn go_on(&mut self, ticket: u64, servers: BTreeSet<NodeId>) {
        self.ticket = ticket;
        self.attempts += 1;
        self.waiting = servers;
    }

    /// A server has saved these ranges.
    pub(crate) fn saved(&mut self, node: NodeId, ranges: &[SavedRange]) -> Outcome {
        if !self.waiting.remove(&node) {
            return Outcome::Waits;
        }
        self.ranges.extend_from_slice(ranges);
        self.outcome()
    }

    /// A server is gone, and saves nothing any more.
    pub(crate) fn gone(&mut self, node: NodeId) -> Outcome {
        match self.waiting.remove(&node) {
            true => self.outcome(),
            false => Outcome::Waits,
        }
    }

    fn outcome(&mut self) -> Outcome {
        if !self.waiting.is_empty() {
            return Outcome::Waits;
        }
        self.ranges = without_parts(std::mem::take(&mut self.ranges));
        let gaps = gaps(&self.ranges);
        if gaps.is_empty() || planted(Mutant::SnapshotWithGap) {
            return Outcome::Complete(std::mem::take(&mut self.ranges));
        }
        match self.attempts < ATTEMPTS {
            true => Outcome::Lacks(gaps),
            false => Outcome::Failed(format!("ranges have moved {ATTEMPTS} times")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> SavedRange {
        SavedRange {
            first,
            last,
            file: String::new(),
            bytes: 0,
        }
    }

    fn servers(count: u32) -> BTreeSet<NodeId> {
        (0..count).map(NodeId::server).collect()
    }

    #[test]
    fn ranges_must_be_all_keys_and_each_once() {
        assert!(is_complete(&[range(0, u64::MAX)]));
        assert!(is_complete(&[range(0, 4), range(5, u64::MAX)]));
        for ranges in [
            vec![],
            vec![range(0, 4)],
            vec![range(1, u64::MAX)],
            vec![range(0, 4), range(6, u64::MAX)],
            vec![range(0, 5), range(5, u64::MAX)],
            vec![range(0, u64::MAX), range(0, u64::MAX)],
            vec![range(0, 5), range(6, 3), range(4, u64::MAX)],
        ] {
            assert!(!is_complete(&ranges), "{ranges:?}");
        }
    }

    #[test]
    fn servers_with_another_optimizer_cannot_go_on_with_a_snapshot() {
        let apps = |optimizer: Option<Optimizer>| {
            let rule = optimizer.map(|it| serde_json::to_string(&it).unwrap());
            let rule = rule.unwrap_or_default();
            vec![App {
                app: 1,
                dtype: 11,
                rule,
            }]
        };
        let all = [
            apps(None),
            apps(Some(Optimizer::sgd(0.1))),
            apps(Some(Optimizer::momentum(0.1, 0.9))),
            apps(Some(Optimizer::adagrad(0.1))),
            apps(Some(Optimizer::adam(0.1))),
        ];
        for (a, saved) in all.iter().enumerate() {
            let origin = Origin {
                number: 1,
                apps: saved.clone(),
            };
            for (b, now) in all.iter().enumerate() {
                assert_eq!(origin.fits(now), a == b, "{saved:?} {now:?}");
            }
        }
        let origin = Origin {
            number: 1,
            apps: apps(Some(Optimizer::adam(0.1))),
        };
        assert!(origin.fits(&apps(Some(Optimizer::adamw(0.05, 0.01)))));
    }

    #[test]
    fn a_snapshot_waits_for_all_servers() {
        let mut saving = Saving::begin(1, 7, servers(2));
        let upper = saving.saved(NodeId::server(1), &[range(10, u64::MAX)]);
        assert_eq!(upper, Outcome::Waits);
        // A repeated report.
        let upper = saving.saved(NodeId::server(1), &[range(10, u64::MAX)]);
        assert_eq!(upper, Outcome::Waits);
        let lower = saving.saved(NodeId::server(0), &[range(0, 9)]);
        let all = vec![range(0, 9), range(10, u64::MAX)];
        assert_eq!(lower, Outcome::Complete(all));
    }

    #[test]
    fn what_a_dead_server_has_not_saved_is_saved_by_others() {
        let mut saving = Saving::begin(1, 7, servers(2));
        saving.saved(NodeId::server(1), &[range(10, u64::MAX)]);
        assert_eq!(saving.gone(NodeId::server(1)), Outcome::Waits);
        let lacks = vec![KeyRange { first: 0, last: 9 }];
        assert_eq!(saving.gone(NodeId::server(0)), Outcome::Lacks(lacks));
        saving.go_on(8, servers(1));
        let rest = saving.saved(NodeId::server(0), &[range(0, 4), range(5, 9)]);
        let all = vec![range(0, 4), range(5, 9), range(10, u64::MAX)];
        assert_eq!(rest, Outcome::Complete(all));
    }

    #[test]
    fn halves_of_a_range_that_was_saved_as_a_whole_are_left_out() {
        let mut saving = Saving::begin(1, 7, servers(2));
        saving.saved(NodeId::server(1), &[range(10, 19)]);
        let outcome = saving.saved(NodeId::server(0), &[range(0, u64::MAX), range(20, 30)]);
        assert_eq!(outcome, Outcome::Complete(vec![range(0, u64::MAX)]));
    }

    #[test]
    fn ranges_that_move_all_the_time_end_it() {
        let mut saving = Saving::begin(1, 1, servers(1));
        for ticket in 2..=ATTEMPTS {
            let outcome = saving.saved(NodeId::server(0), &[range(0, 5)]);
            assert!(matches!(outcome, Outcome::Lacks(_)), "{outcome:?}");
            saving.go_on(u64::from(ticket), servers(1));
        }
        let outcome = saving.saved(NodeId::server(0), &[range(0, 5)]);
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    }
}

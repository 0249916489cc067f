//! How much each range is used, and which one is to be split.
//!
//! Each server reports once in an interval. When all have, the turn ends: the loads are halved and the new ones added, so a
//! range that was busy for a moment is forgotten.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::map::ChainMap;
use crate::core::node::NodeId;

/// The use of a range on one server since its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RangeLoad {
    pub(crate) first: u64,
    /// Keys of requests.
    pub(crate) keys: u64,
    /// Half of the requests are for keys from this one on. `None` if all are for the first key of the range.
    pub(crate) middle: Option<u64>,
}

/// The weight of a range that nobody uses. All ranges together have four times as much for their use.
const BASE: u64 = 1000;
const USE: u64 = 4 * BASE;
/// Loads below it, of all ranges in a turn, lead to no split.
const MIN_KEYS: u64 = 10_000;
/// Ranges for each server, at most.
const MAX_RANGES: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    keys: u64,
    middle: Option<u64>,
}

/// The loads of all ranges.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// Reports of this turn.
    turn: BTreeMap<NodeId, Vec<RangeLoad>>,
    ranges: BTreeMap<u64, Use>,
    total: u64,
    /// How many ranges there are.
    count: u64,
}

impl Loads {
    pub(crate) fn report(&mut self, node: NodeId, loads: &[RangeLoad]) {
        self.turn.insert(node, loads.to_vec());
    }

    /// Whether a server has reported in this turn.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.turn.contains_key(&node)
    }

    pub(crate) fn forget(&mut self, node: NodeId) {
        self.turn.remove(&node);
    }

    /// Ends the turn. Returns a range to split, and where: the most used one, if it has more than half of what a server has on
    /// average.
    pub(crate) fn end_of_turn(&mut self, map: &ChainMap, servers: usize) -> Option<(u64, u64)> {
        for usage in self.ranges.values_mut() {
            usage.keys /= 2;
        }
        for load in std::mem::take(&mut self.turn).into_values().flatten() {
            let usage = self.ranges.entry(load.first).or_default();
            usage.keys += load.keys;
            usage.middle = load.middle.or(usage.middle);
        }
        self.ranges.retain(|_, usage| usage.keys > 0);
        self.count = map.ranges.len() as u64;
        self.total = self.ranges.values().map(|usage| usage.keys).sum();
        let (&first, most) = self.ranges.iter().max_by_key(|(_, usage)| usage.keys)?;
        let range = map.range_at(first)?;
        let inside = |middle: &u64| first < *middle && *middle <= range.last;
        let middle = most.middle.filter(inside)?;
        let large = most.keys.saturating_mul(2 * servers as u64) > self.total;
        let wanted = large
            && self.total >= MIN_KEYS
            && servers > 1
            && !range.chain.is_empty()
            && map.ranges.len() < servers * MAX_RANGES;
        if !wanted {
            return None;
        }
        let half = Use {
            keys: most.keys / 2,
            middle: None,
        };
        self.ranges.insert(first, half);
        self.ranges.insert(middle, half);
        Some((first, middle))
    }

    /// The weight of a range: what it has at least, and its part of the load.
    pub(crate) fn weight(&self, first: u64) -> u64 {
        let keys = self.ranges.get(&first).map_or(0, |usage| usage.keys);
        BASE + (keys.saturating_mul(USE * self.count))
            .checked_div(self.total)
            .unwrap_or(0)
    }
}

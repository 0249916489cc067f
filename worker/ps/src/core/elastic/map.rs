//! The range map of an elastic job: which servers have which keys, in versions.

use serde::{Deserialize, Serialize};

use crate::core::{node::NodeId, ranges::KeyRange};

/// A range and its chain of servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChainRange {
    /// The smallest key. It names the range: ranges are split and never merged.
    pub(crate) first: u64,
    /// The largest key.
    pub(crate) last: u64,
    /// From head to tail. Empty if all copies are lost.
    pub(crate) chain: Vec<NodeId>,
    /// The version of the map in which this range or its chain was changed last.
    pub(crate) changed: u64,
}

impl ChainRange {
    pub(crate) fn keys(&self) -> KeyRange {
        KeyRange {
            first: self.first,
            last: self.last,
        }
    }

    pub(crate) fn head(&self) -> Option<NodeId> {
        self.chain.first().copied()
    }

    pub(crate) fn tail(&self) -> Option<NodeId> {
        self.chain.last().copied()
    }
}

/// An app of the elastic servers, the type of its values, and how pushes change them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct App {
    pub(crate) app: u32,
    pub(crate) dtype: u8,
    /// Empty for sums.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) rule: String,
}

/// Ranges in ascending order that cover all keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChainMap {
    pub(crate) version: u64,
    pub(crate) apps: Vec<App>,
    pub(crate) ranges: Vec<ChainRange>,
}

impl ChainMap {
    /// Equal ranges, so many for each server. Neighbours in the list of servers are neighbours in chains.
    pub(crate) fn equal(servers: &[NodeId], per_server: usize, copies: usize) -> Self {
        let count = servers.len() * per_server;
        let last = |index: usize| ((1u128 << 64) * (index as u128 + 1) / count as u128 - 1) as u64;
        let range = |index: usize| ChainRange {
            first: match index {
                0 => 0,
                index => last(index - 1) + 1,
            },
            last: last(index),
            chain: (0..copies.min(servers.len()))
                .map(|copy| servers[(index + copy) % servers.len()])
                .collect(),
            changed: 1,
        };
        Self {
            version: 1,
            apps: Vec::new(),
            ranges: (0..count).map(range).collect(),
        }
    }

    /// The range of a key.
    pub(crate) fn range_of(&self, key: u64) -> &ChainRange {
        let index = self.ranges.partition_point(|range| range.last < key);
        &self.ranges[index]
    }

    /// The ranges of these keys, and how many of them each has. The keys ascend.
    pub(crate) fn cut<'a>(
        &'a self,
        keys: &'a [u64],
    ) -> impl Iterator<Item = (&'a ChainRange, usize)> {
        let mut rest = keys;
        std::iter::from_fn(move || {
            let range = self.range_of(*rest.first()?);
            let count = rest.partition_point(|&key| key <= range.last);
            rest = &rest[count..];
            Some((range, count))
        })
    }

    /// The range that begins with this key.
    pub(crate) fn range_at(&self, first: u64) -> Option<&ChainRange> {
        let range = self.range_of(first);
        (range.first == first).then_some(range)
    }

    /// Whether the ranges are in order and cover all keys. A map comes from another process.
    pub(crate) fn is_complete(&self) -> bool {
        let starts = self.ranges.first().is_some_and(|range| range.first == 0);
        let ends = self
            .ranges
            .last()
            .is_some_and(|range| range.last == u64::MAX);
        let ordered = self.ranges.iter().all(|range| range.first <= range.last);
        let joined = self.ranges.windows(2);
        let mut joined = joined.map(|pair| pair[0].last.checked_add(1) == Some(pair[1].first));
        starts && ends && ordered && joined.all(|joined| joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ranges_cover_all_keys_and_spread_heads_and_tails() {
        for (count, copies) in [(1, 1), (2, 2), (3, 2), (5, 3)] {
            let servers: Vec<_> = (0..count).map(NodeId::server).collect();
            let map = ChainMap::equal(&servers, 8, copies);
            assert!(map.is_complete());
            assert_eq!(map.ranges.len(), count as usize * 8);
            for server in &servers {
                let heads = map.ranges.iter().filter(|r| r.head() == Some(*server));
                let tails = map.ranges.iter().filter(|r| r.tail() == Some(*server));
                assert_eq!((heads.count(), tails.count()), (8, 8));
            }
            assert_eq!(map.range_of(0).first, 0);
            assert_eq!(map.range_of(u64::MAX).last, u64::MAX);
            let second = map.ranges[1].first;
            assert_eq!(map.range_at(second).map(|range| range.first), Some(second));
            assert_eq!(map.range_at(second + 1), None);
        }
    }

    #[test]
    fn a_map_with_a_gap_is_not_complete() {
        let mut map = ChainMap::equal(&[NodeId::server(0)], 4, 1);
        map.ranges.remove(1);
        assert!(!map.is_complete());
        map.ranges.clear();
        assert!(!map.is_complete());
    }
}

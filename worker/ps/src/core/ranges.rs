//! Which server has which keys.
//!
//! Ranges are closed at both ends: the last key of a range belongs to it. A half-open range cannot contain the largest
//! key, `u64::MAX`.

use super::node::NodeId;

/// Keys from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The smallest key.
    pub first: u64,
    /// The largest key.
    pub last: u64,
}

impl KeyRange {
    /// Whether the key is in it.
    pub fn contains(self, key: u64) -> bool {
        (self.first..=self.last).contains(&key)
    }
}

/// A list of ranges in ascending order that covers all keys, with a server for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeMap {
    version: u64,
    /// The last key of each range, ascending; that of the last one is `u64::MAX`.
    lasts: Vec<u64>,
    servers: Vec<NodeId>,
}

impl RangeMap {
    /// The version of a map that nothing has changed.
    pub const FIRST_VERSION: u64 = 1;

    /// Equal ranges for so many servers: their sizes differ by one key at most.
    ///
    /// # Panics
    /// There is no server.
    pub fn equal(servers: u32) -> Self {
        assert!(servers > 0, "a range map needs a server");
        let all = 1u128 << 64;
        let last = |rank: u32| (all * u128::from(rank + 1) / u128::from(servers) - 1) as u64;
        Self {
            version: Self::FIRST_VERSION,
            lasts: (0..servers).map(last).collect(),
            servers: (0..servers).map(NodeId::server).collect(),
        }
    }

    /// The version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The ranges and their servers.
    pub fn ranges(&self) -> impl Iterator<Item = (KeyRange, NodeId)> {
        let firsts = std::iter::once(0).chain(self.lasts.iter().map(|last| last.wrapping_add(1)));
        let ranges = firsts.zip(&self.lasts);
        ranges
            .map(|(first, &last)| KeyRange { first, last })
            .zip(self.servers.iter().copied())
    }

    /// The server of a key.
    pub fn server(&self, key: u64) -> NodeId {
        self.servers[self.lasts.partition_point(|&last| last < key)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_dropped_at_either_end() {
        for servers in [1, 2, 3, 7, 300] {
            let map = RangeMap::equal(servers);
            let ranges: Vec<_> = map.ranges().collect();
            assert_eq!(ranges[0].0.first, 0);
            assert_eq!(ranges.last().map(|(range, _)| range.last), Some(u64::MAX));
            assert_eq!(map.server(0), NodeId::server(0));
            assert_eq!(map.server(u64::MAX), NodeId::server(servers - 1));
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].0.last + 1, pair[1].0.first);
            }
        }
    }

    proptest! {
        #[test]
        fn each_key_has_the_server_whose_range_contains_it(servers in 1u32..50, key: u64) {
            let map = RangeMap::equal(servers);
            let found: Vec<_> = map.ranges().filter(|(range, _)| range.contains(key)).collect();
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(found[0].1, map.server(key));
            let sizes: Vec<u64> = map.ranges().map(|(range, _)| range.last - range.first).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }
}

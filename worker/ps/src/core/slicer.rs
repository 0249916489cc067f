//! Cutting a request into a part for each server.

use super::{keys::Lens, node::NodeId, ranges::RangeMap};

/// The keys `keys_first..keys_end` and the values `values_first..values_end` of a request, for one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The server.
    pub server: NodeId,
    /// Index of the first key.
    pub keys_first: usize,
    /// Index behind the last key.
    pub keys_end: usize,
    /// Index of the first value.
    pub values_first: usize,
    /// Index behind the last value.
    pub values_end: usize,
}

/// Why the parts of a slicer are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// Two parts have a key in common.
    #[error("the slicer gives the key at position {position} to {first} and to {second}")]
    Overlap {
        /// Index of the key.
        position: usize,
        /// One server.
        first: NodeId,
        /// The other server.
        second: NodeId,
    },
    /// A key is in no part.
    #[error("the slicer gives the key at position {position} to no server")]
    Gap {
        /// Index of the key.
        position: usize,
    },
    /// A part ends before it begins, or behind the last key.
    #[error("the slicer gives {server} keys {first}..{end} of {keys}")]
    Bounds {
        /// The server of the part.
        server: NodeId,
        /// Its first key.
        first: usize,
        /// Its end.
        end: usize,
        /// Number of keys.
        keys: usize,
    },
    /// A server got two parts.
    #[error("the slicer gives {server} two parts; one part for each server is allowed")]
    TwoParts {
        /// The server.
        server: NodeId,
    },
    /// The part is for a node that is no server of this job.
    #[error("the slicer gives keys to {node}, which is no server of this job")]
    NoServer {
        /// The node.
        node: NodeId,
    },
}

/// Where the keys of a request go: a server and `first..end`, positions in the list of keys.
pub type Parts = Vec<(NodeId, std::ops::Range<usize>)>;

/// The parts by a range map. Servers without a key of the request get none.
pub fn parts_by_range(keys: &[u64], map: &RangeMap) -> Parts {
    let mut parts = Parts::new();
    let mut first = 0;
    for (range, server) in map.ranges() {
        if first == keys.len() {
            break;
        }
        let rest = &keys[first..];
        // All keys on the server of the first one is the common case of small requests.
        let end = match keys[keys.len() - 1] <= range.last {
            true => keys.len(),
            false => first + rest.partition_point(|&key| key <= range.last),
        };
        if end > first {
            parts.push((server, first..end));
            first = end;
        }
    }
    parts
}

/// Checks that each key is in exactly one part, and cuts the values accordingly. Empty parts are left out.
///
/// # Errors
/// Parts overlap, leave a key out, or name a node that is no server.
pub fn slices(
    parts: Parts,
    keys: usize,
    lens: Lens<'_>,
    servers: u32,
) -> Result<Vec<Slice>, SliceError> {
    let mut parts = parts;
    parts.retain(|(_, range)| range.start != range.end);
    for (server, range) in &parts {
        let is_server = server.role() == Some(super::node::Role::Server);
        if !is_server || server.rank() >= servers {
            return Err(SliceError::NoServer { node: *server });
        }
        if range.start > range.end || range.end > keys {
            return Err(SliceError::Bounds {
                server: *server,
                first: range.start,
                end: range.end,
                keys,
            });
        }
    }
    parts.sort_by_key(|(_, range)| range.start);
    let mut slices: Vec<Slice> = Vec::with_capacity(parts.len());
    let mut values_first = 0;
    let mut next = 0;
    for (server, range) in parts {
        if range.start < next {
            return Err(SliceError::Overlap {
                position: range.start,
                first: slices[slices.len() - 1].server,
                second: server,
            });
        }
        if range.start > next {
            return Err(SliceError::Gap { position: next });
        }
        if slices.iter().any(|slice| slice.server == server) {
            return Err(SliceError::TwoParts { server });
        }
        let values_end = values_first + lens.total(range.start, range.end);
        slices.push(Slice {
            server,
            keys_first: range.start,
            keys_end: range.end,
            values_first,
            values_end,
        });
        values_first = values_end;
        next = range.end;
    }
    match next == keys {
        true => Ok(slices),
        false => Err(SliceError::Gap { position: next }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_map, prelude::*};

    use super::*;

    fn server(rank: u32) -> NodeId {
        NodeId::server(rank)
    }

    #[test]
    fn bad_slicers_are_refused_by_name() {
        let lens = Lens::Uniform(1);
        let cut = |parts: &[(u32, std::ops::Range<usize>)]| {
            let parts = parts
                .iter()
                .map(|(rank, range)| (server(*rank), range.clone()));
            slices(parts.collect(), 4, lens, 2)
        };
        assert_eq!(
            cut(&[(0, 0..3), (1, 2..4)]),
            Err(SliceError::Overlap {
                position: 2,
                first: server(0),
                second: server(1)
            })
        );
        assert_eq!(
            cut(&[(0, 0..1), (1, 2..4)]),
            Err(SliceError::Gap { position: 1 })
        );
        assert_eq!(cut(&[(0, 0..1)]), Err(SliceError::Gap { position: 1 }));
        assert_eq!(cut(&[]), Err(SliceError::Gap { position: 0 }));
        assert_eq!(
            cut(&[(0, 0..1), (0, 1..4)]),
            Err(SliceError::TwoParts { server: server(0) })
        );
        assert_eq!(
            cut(&[(2, 0..4)]),
            Err(SliceError::NoServer { node: server(2) })
        );
        assert!(matches!(
            cut(&[(0, 0..5)]),
            Err(SliceError::Bounds { end: 5, .. })
        ));
        let worker = NodeId::worker(0);
        let parts = vec![(worker, 0..4)];
        assert_eq!(
            slices(parts, 4, lens, 2),
            Err(SliceError::NoServer { node: worker })
        );
        // In any order, and with empty parts.
        let cut = cut(&[(1, 1..4), (0, 0..1)]).unwrap();
        assert_eq!(cut[0].server, server(0));
        assert_eq!((cut[1].values_first, cut[1].values_end), (1, 4));
    }

    proptest! {
        #[test]
        fn each_key_goes_to_its_server_with_its_values(
            pairs in btree_map(any::<u64>(), 0u32..5, 1..100),
            ends in any::<[bool; 2]>(),
            servers in 1u32..6,
        ) {
            let mut pairs = pairs;
            for (end, key) in ends.into_iter().zip([0, u64::MAX]) {
                if end {
                    pairs.insert(key, 2);
                }
            }
            let keys: Vec<u64> = pairs.keys().copied().collect();
            let lens: Vec<u32> = pairs.values().copied().collect();
            let map = RangeMap::equal(servers);
            let cut = slices(parts_by_range(&keys, &map), keys.len(), Lens::Mixed(&lens), servers).unwrap();
            let mut next = (0, 0);
            for slice in cut {
                prop_assert_eq!((slice.keys_first, slice.values_first), next);
                for &key in &keys[slice.keys_first..slice.keys_end] {
                    prop_assert_eq!(map.server(key), slice.server);
                }
                next = (slice.keys_end, slice.values_end);
            }
            prop_assert_eq!(next, (keys.len(), lens.iter().map(|&len| len as usize).sum()));
        }
    }
}

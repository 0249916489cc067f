//! The connections between the leaders of hosts in a round.
//!
//! The driver puts exactly these addresses into the start of a round, and the data plane opens exactly these
//! connections. So both use the same pure function. The connections are the ring (next and previous) and the hypercube
//! (index with one bit flipped), whose edges contain those of the binomial tree rooted at host 0. So a host has at most
//! 2 + log2(hosts) neighbours, rounded up.

use std::collections::BTreeSet;

/// Host indices of the neighbours of host `host_index` in a round of `host_count` hosts, ascending.
///
/// Symmetric: `a` is a neighbour of `b` exactly if `b` is one of `a`. Empty if there is one host or if `host_index` is
/// not below `host_count`.
pub fn neighbours(host_index: u32, host_count: u32) -> Vec<u32> {
    if host_count < 2 || host_index >= host_count {
        return Vec::new();
    }
    let ring = [
        (host_index + 1) % host_count,
        (host_index + host_count - 1) % host_count,
    ];
    let cube = (0..u32::BITS)
        .map(|bit| host_index ^ (1 << bit))
        .filter(|&other| other < host_count);
    ring.into_iter()
        .chain(cube)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::neighbours;

    #[test]
    fn small_rounds() {
        assert!(neighbours(0, 1).is_empty());
        assert!(neighbours(3, 2).is_empty());
        assert_eq!(neighbours(0, 2), [1]);
        assert_eq!(neighbours(1, 3), [0, 2]);
        assert_eq!(neighbours(5, 8), [1, 4, 6, 7]);
    }

    #[test]
    fn symmetric_few_and_never_oneself() {
        for hosts in 1..70 {
            for host in 0..hosts {
                let mine = neighbours(host, hosts);
                assert!(!mine.contains(&host));
                assert!(mine.len() as u32 <= 2 + hosts.ilog2() + 1);
                for other in mine {
                    assert!(neighbours(other, hosts).contains(&host));
                }
            }
        }
    }

    #[test]
    fn binomial_tree_edges_are_there() {
        for hosts in 2..70u32 {
            for host in 1..hosts {
                let parent = host & (host - 1);
                assert!(
                    neighbours(host, hosts).contains(&parent),
                    "{host} of {hosts}"
                );
            }
        }
    }
}

//! Who reads for a host, and who sends to it.

use std::collections::BTreeMap;

use super::{Chain, Holder, Link, Seat, groups::Groups};

/// Bytes of one group of shards that go to a host over the network, and not along a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assigned {
    pub(super) host: u32,
    pub(super) group: u32,
    /// Index of the holder that sends.
    pub(super) holder: u32,
    pub(super) bytes: u64,
}

/// What the members of a group of the new layout need of a group of the old one, and do not have on their hosts.
#[derive(Debug, Default)]
pub(super) struct Demand {
    bytes: u64,
    /// The hosts, by number.
    hosts: Vec<Link>,
}

/// Demands by group of the old and of the new layout.
pub(super) type Demands = BTreeMap<(u32, u32), Demand>;

/// Readers and holders of each group of shards, and who sends to whom.
#[derive(Debug)]
pub(super) struct Choice {
    /// For each group of the new layout the hosts of its members, by number.
    readers: Vec<Vec<Link>>,
    /// For each group of the old layout its holders, by host, then by order.
    holders: Vec<Vec<u32>>,
    /// The host of each of them.
    holder_hosts: Vec<Vec<u32>>,
    /// What goes over the network but not along a chain, by host and group.
    assigned: Vec<Assigned>,
    chains: Vec<Chain>,
    /// The chain of each pair of groups of the old and the new layout that has one.
    by_groups: BTreeMap<(u32, u32), u32>,
}

impl Choice {
    pub(super) fn new(seats: &[Seat], holders: &[Holder], old: &Groups, new: &Groups) -> Self {
        let by_host = |nth: u32| (seats[nth as usize].host, nth);
        let by_order = |nth: u32| {
            let holder = holders[nth as usize];
            (holder.host, holder.order, nth)
        };
        let readers = grouped(seats.iter().map(|seat| seat.shard), new, by_host);
        let links = |list: Vec<u32>| {
            let hosts = list.chunk_by(|a, b| seats[*a as usize].host == seats[*b as usize].host);
            let link = |same: &[u32]| Link {
                host: seats[same[0] as usize].host,
                readers: same.len() as u32,
            };
            hosts.map(link).collect()
        };
        let holders_of = grouped(holders.iter().map(|holder| holder.shard), old, by_order);
        let hosts = |list: &Vec<u32>| list.iter().map(|&nth| holders[nth as usize].host).collect();
        Self {
            readers: readers.into_iter().map(links).collect(),
            holder_hosts: holders_of.iter().map(hosts).collect(),
            holders: holders_of,
            assigned: Vec::new(),
            chains: Vec::new(),
            by_groups: BTreeMap::new(),
        }
    }

    /// Whether a member needs what this group of the new layout holds.
    pub(super) fn is_read(&self, group: u32) -> bool {
        !self.readers[group as usize].is_empty()
    }

    /// Those that hold what this group of the old layout holds.
    pub(super) fn holders(&self, group: u32) -> &[u32] {
        &self.holders[group as usize]
    }

    /// Those of them on a host, in their order.
    pub(super) fn on_host(&self, host: u32, group: u32) -> &[u32] {
        let hosts = &self.holder_hosts[group as usize];
        let from = hosts.partition_point(|&other| other < host);
        let to = from + hosts[from..].partition_point(|&other| other == host);
        &self.holders[group as usize][from..to]
    }

    /// Whether the host has a holder of the group.
    pub(super) fn has_on_host(&self, host: u32, group: u32) -> bool {
        self.holder_hosts[group as usize]
            .binary_search(&host)
            .is_ok()
    }

    /// The holder from which a host without one gets what a group of the old layout holds for members of a group of the new
    /// one, and the chain on which it comes, if it comes on one.
    pub(super) fn sender(&self, host: u32, old: u32, new: u32) -> (u32, Option<u32>) {
        if let Some(&chain) = self.by_groups.get(&(old, new)) {
            return (self.chains[chain as usize].holder, Some(chain));
        }
        let key = |assigned: &Assigned| (assigned.host, assigned.group);
        let found = self.assigned.binary_search_by_key(&(host, old), key);
        let found = found.expect("each demand was assigned");
        (self.assigned[found].holder, None)
    }

    /// What goes over the network but not along a chain, by host and group.
    pub(super) fn assigned(&self) -> &[Assigned] {
        &self.assigned
    }

    /// The chains.
    pub(super) fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// Adds bytes of a group of the old layout that members of a group of the new one need, to the demands.
    pub(super) fn demand(&self, demands: &mut Demands, (old, new): (u32, u32), bytes: u64) {
        let demand = demands.entry((old, new)).or_insert_with(|| {
            let hosts = self.readers[new as usize].iter().copied();
            Demand {
                bytes: 0,
                hosts: hosts
                    .filter(|link| !self.has_on_host(link.host, old))
                    .collect(),
            }
        });
        demand.bytes = demand.bytes.saturating_add(bytes);
    }

    /// Chooses the holder that sends for each demand, in order: the one whose host has the fewest bytes to send so far.
    /// Several members that need at least so many bytes form a chain.
    pub(super) fn assign(&mut self, holders: &[Holder], demands: Demands, least: u64) {
        let mut sent: BTreeMap<u32, u64> = BTreeMap::new();
        let mut alone = Vec::new();
        for ((old, new), Demand { bytes, hosts }) in demands {
            let readers: u32 = hosts.iter().map(|link| link.readers).sum();
            if readers < 2 || bytes < least {
                // Each member fetches for itself.
                let demand = |link: &Link| {
                    let bytes = bytes.saturating_mul(link.readers.into());
                    (link.host, old, bytes)
                };
                alone.extend(hosts.iter().map(demand));
                continue;
            }
            let holder = self.least_loaded(holders, old, &sent);
            let first = holders[holder as usize].host;
            let senders = std::iter::once(first).chain(hosts.iter().map(|link| link.host));
            for sender in senders.take(hosts.len()) {
                let total = sent.entry(sender).or_default();
                *total = total.saturating_add(bytes);
            }
            self.by_groups.insert((old, new), self.chains.len() as u32);
            self.chains.push(Chain {
                holder,
                bytes,
                hosts,
            });
        }
        alone.sort_unstable_by_key(|&(host, group, _)| (host, group));
        for same in alone.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (host, group, _) = same[0];
            let add = |sum: u64, (_, _, bytes): &(u32, u32, u64)| sum.saturating_add(*bytes);
            let bytes = same.iter().fold(0, add);
            let holder = self.least_loaded(holders, group, &sent);
            let total = sent.entry(holders[holder as usize].host).or_default();
            *total = total.saturating_add(bytes);
            self.assigned.push(Assigned {
                host,
                group,
                holder,
                bytes,
            });
        }
    }

    /// The holder of a group whose host has the fewest bytes to send.
    fn least_loaded(&self, holders: &[Holder], group: u32, sent: &BTreeMap<u32, u64>) -> u32 {
        let load = |nth: &u32| {
            let holder = holders[*nth as usize];
            let sent = sent.get(&holder.host).copied().unwrap_or(0);
            (sent, holder.order, *nth)
        };
        let candidates = self.holders[group as usize].iter().copied();
        candidates.min_by_key(load).expect("a demand has a holder")
    }
}

/// For each group the indices whose shard is in it, sorted by a key.
fn grouped<K: Ord>(
    shards: impl Iterator<Item = u32>,
    groups: &Groups,
    key: impl Fn(u32) -> K,
) -> Vec<Vec<u32>> {
    let mut by_shard: Vec<(u32, u32)> = shards.zip(0..).collect();
    by_shard.sort_unstable();
    (groups.iter())
        .map(|shards| {
            let mut list = Vec::new();
            for &shard in shards {
                let from = by_shard.partition_point(|&(other, _)| other < shard);
                let same = by_shard[from..]
                    .iter()
                    .take_while(|&&(other, _)| other == shard);
                list.extend(same.map(|&(_, nth)| nth));
            }
            list.sort_by_key(|&nth| key(nth));
            list
        })
        .collect()
}

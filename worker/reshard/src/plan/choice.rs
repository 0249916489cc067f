//! Who reads for a host, and who sends to it.

use std::collections::BTreeMap;

use super::{Holder, Seat, groups::Groups};

/// Bytes of one group of shards that go to a host over the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assigned {
    pub(super) host: u32,
    pub(super) group: u32,
    /// Index of the holder that sends.
    pub(super) holder: u32,
    pub(super) bytes: u64,
}

/// Readers and holders of each group of shards, and who sends to whom.
#[derive(Debug)]
pub(super) struct Choice {
    /// For each group of the new layout the first member on each host, by host.
    readers: Vec<Vec<u32>>,
    /// For each group of the old layout its holders, by host, then by order.
    holders: Vec<Vec<u32>>,
    /// The host of each of them.
    holder_hosts: Vec<Vec<u32>>,
    /// What goes over the network, by host and group.
    assigned: Vec<Assigned>,
}

impl Choice {
    pub(super) fn new(seats: &[Seat], holders: &[Holder], old: &Groups, new: &Groups) -> Self {
        let by_rank = |nth: u32| {
            let seat = seats[nth as usize];
            (seat.host, seat.rank, nth)
        };
        let by_order = |nth: u32| {
            let holder = holders[nth as usize];
            (holder.host, holder.order, nth)
        };
        let mut readers = grouped(seats.iter().map(|seat| seat.shard), new, by_rank);
        for list in &mut readers {
            list.dedup_by_key(|seat| seats[*seat as usize].host);
        }
        let holders_of = grouped(holders.iter().map(|holder| holder.shard), old, by_order);
        let hosts = |list: &Vec<u32>| list.iter().map(|&nth| holders[nth as usize].host).collect();
        Self {
            readers,
            holder_hosts: holders_of.iter().map(hosts).collect(),
            holders: holders_of,
            assigned: Vec::new(),
        }
    }

    /// The first member of each host that needs what this group of the new layout holds.
    pub(super) fn readers(&self, group: u32) -> &[u32] {
        &self.readers[group as usize]
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

    /// The holder from which the host reads the group over the network.
    pub(super) fn sender(&self, host: u32, group: u32) -> u32 {
        let key = |assigned: &Assigned| (assigned.host, assigned.group);
        let found = self.assigned.binary_search_by_key(&(host, group), key);
        self.assigned[found.expect("each demand was assigned")].holder
    }

    /// What goes over the network, by host and group.
    pub(super) fn assigned(&self) -> &[Assigned] {
        &self.assigned
    }

    /// Chooses a holder for each host and group that has a demand, in order: the one whose host has the fewest bytes to
    /// send so far.
    pub(super) fn assign(&mut self, holders: &[Holder], mut demands: Vec<(u32, u32, u64)>) {
        demands.sort_unstable_by_key(|&(host, group, _)| (host, group));
        let mut sent: BTreeMap<u32, u64> = BTreeMap::new();
        for same in demands.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (host, group, _) = same[0];
            let bytes = same.iter().map(|&(_, _, bytes)| bytes).sum();
            let load = |nth: &u32| {
                let holder = holders[*nth as usize];
                let sent = sent.get(&holder.host).copied().unwrap_or(0);
                (sent, holder.order, *nth)
            };
            let candidates = self.holders[group as usize].iter().copied();
            let holder = candidates.min_by_key(load).expect("a demand has a holder");
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

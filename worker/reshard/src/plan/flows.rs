//! How many bytes go where.

use std::collections::BTreeMap;

use super::Plan;

/// Bytes of one holder that a host reads from another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The host that reads.
    pub host: u32,
    /// The host that sends: that of the holder, or one that passes them on.
    pub from: u32,
    /// Index of the holder in the list of the plan.
    pub holder: u32,
    /// Its shard of the old layout.
    pub shard: u32,
    /// Number of bytes.
    pub bytes: u64,
}

/// Bytes on one host. Its peak is `held`, and `live` once for the tensors of its members and once for each buffer of a
/// commit, with the heads and the padding of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostBytes {
    /// The host.
    pub host: u32,
    /// Bytes of the shards of the old layout that its memory holds.
    pub held: u64,
    /// Bytes of the shards of the new layout of its members.
    pub live: u64,
    /// Bytes that it sends to other hosts.
    pub sent: u64,
    /// Bytes that it receives from other hosts.
    pub received: u64,
    /// Bytes that it passes on, to its own members or to another host. It keeps each until all have read it.
    pub passed: u64,
}

/// How many bytes go where, for all members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flows {
    /// What goes over the network, by host, holder and host that sends.
    pub between: Vec<Flow>,
    /// All hosts of members and holders, by host.
    pub hosts: Vec<HostBytes>,
}

impl Plan<'_> {
    /// How many bytes go where. Sums that do not fit are the largest number.
    pub fn flows(&self) -> Flows {
        let mut hosts: BTreeMap<u32, HostBytes> = BTreeMap::new();
        let mut add = |host: u32, part: fn(&mut HostBytes) -> &mut u64, bytes: u64| {
            let host = hosts.entry(host).or_insert(HostBytes {
                host,
                ..HostBytes::default()
            });
            let sum = part(host);
            *sum = sum.saturating_add(bytes);
        };
        let held = self.old_cells.bytes_by_shard(self.old);
        for holder in self.holders {
            add(
                holder.host,
                |host| &mut host.held,
                held[holder.shard as usize],
            );
        }
        let live = self.new_cells.bytes_by_shard(self.new);
        for seat in self.seats {
            add(seat.host, |host| &mut host.live, live[seat.shard as usize]);
        }
        let mut between: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
        let mut flow = |host: u32, holder: u32, from: u32, bytes: u64| {
            add(from, |host| &mut host.sent, bytes);
            add(host, |host| &mut host.received, bytes);
            let sum = between.entry((host, holder, from)).or_default();
            *sum = sum.saturating_add(bytes);
        };
        for assigned in self.choice.assigned() {
            let from = self.holders[assigned.holder as usize].host;
            flow(assigned.host, assigned.holder, from, assigned.bytes);
        }
        for chain in self.choice.chains() {
            let mut from = self.holders[chain.holder as usize].host;
            for link in &chain.hosts {
                flow(link.host, chain.holder, from, chain.bytes);
                from = link.host;
            }
        }
        for chain in self.choice.chains() {
            for host in chain.keepers() {
                add(host, |host| &mut host.passed, chain.bytes);
            }
        }
        let flow = |((host, holder, from), bytes)| Flow {
            host,
            from,
            holder,
            shard: self.holders[holder as usize].shard,
            bytes,
        };
        Flows {
            between: between.into_iter().map(flow).collect(),
            hosts: hosts.into_values().collect(),
        }
    }
}

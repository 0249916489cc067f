//! How many bytes go where.

use std::collections::BTreeMap;

use super::Plan;

/// Bytes that a host reads from one holder of another host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The host that reads.
    pub host: u32,
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
}

/// How many bytes go where, for all members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flows {
    /// What goes over the network, by host and holder.
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
        let mut between: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for assigned in self.choice.assigned() {
            let sender = self.holders[assigned.holder as usize].host;
            add(sender, |host| &mut host.sent, assigned.bytes);
            add(assigned.host, |host| &mut host.received, assigned.bytes);
            *between.entry((assigned.host, assigned.holder)).or_default() += assigned.bytes;
        }
        let flow = |((host, holder), bytes)| Flow {
            host,
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

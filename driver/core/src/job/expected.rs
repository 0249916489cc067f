//! The places that processes would have if they joined now. They are in the environment of a process until a round
//! defines its place.
//!
//! [`Capacity`] counts the slots in the order of arrival. A round puts its survivors first (R2, see
//! [`assignment`](crate::assignment)): the host of rank 0, then hosts with other survivors, then the rest. Within a
//! host, survivors precede new workers. So a process that replaces rank 0 does not have rank 0.
//!
//! Cost: O(hosts) once for each change of the survivors or of the capacity, O(log hosts) for a process.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{HostId, LocalRank, Rank, Round, control::Place};

use super::Capacity;
use crate::registry::Registry;

/// Hosts with living members of the last round, in the order of the capacity.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    /// Identifies the set of survivors: within one round it only shrinks.
    of: Option<(Round, u32)>,
    /// In order of arrival.
    hosts: Vec<Host>,
    /// The index of the host with rank 0.
    leader: Option<usize>,
    /// The number of slots before each of these hosts, and of all of them.
    before: Vec<u32>,
    /// The same for each local rank.
    crosses: BTreeMap<LocalRank, Vec<u32>>,
}

#[derive(Clone, Debug)]
struct Host {
    /// The number of slots of the hosts that arrived before it.
    first: u32,
    slots: BTreeSet<LocalRank>,
    survivors: BTreeSet<LocalRank>,
}

impl Expected {
    /// Invalidates the data, since the capacity was counted again.
    pub(super) fn forget(&mut self) {
        self.of = None;
    }

    /// Updates the data for the current survivors.
    pub(super) fn update(&mut self, capacity: &Capacity, registry: &Registry) {
        let of = registry.round().map(|round| (round, registry.alive()));
        if of.is_some() && self.of == of {
            return;
        }
        *self = Self {
            of,
            ..Self::default()
        };
        let mut leads = None;
        for (host, survivors) in registry.survivors() {
            let Some(first) = capacity.first(host) else {
                continue;
            };
            let slots: BTreeSet<_> = capacity.slots(host).map(|(slot, _)| slot).collect();
            let usable = survivors.filter(|(slot, _)| slots.contains(slot));
            let ranks: BTreeMap<_, _> = usable.collect();
            if ranks.is_empty() {
                continue;
            }
            if ranks.values().any(|rank| *rank == Rank(0)) {
                leads = Some(first);
            }
            self.hosts.push(Host {
                first,
                slots,
                survivors: ranks.into_keys().collect(),
            });
        }
        self.hosts.sort_by_key(|host| host.first);
        self.leader = leads.and_then(|first| self.hosts.iter().position(|h| h.first == first));
        self.before = sums(self.hosts.iter().map(|host| host.slots.len() as u32));
    }

    /// The place of a process that is started in a slot; `counted` is its place among all usable slots.
    pub(super) fn place(
        &mut self,
        capacity: &Capacity,
        host: &HostId,
        slot: LocalRank,
        counted: Place,
    ) -> Place {
        if self.hosts.is_empty() {
            return counted;
        }
        let Some(first) = capacity.first(host) else {
            return counted;
        };
        let index = self.hosts.partition_point(|old| old.first < first);
        let own = self.hosts.get(index).filter(|old| old.first == first);
        let rank = self.in_front(&self.before, index, own.is_some(), first);
        let rank = rank
            + own.map_or_else(
                || capacity.slots(host).take_while(|(s, _)| *s < slot).count() as u32,
                |own| own.before(slot),
            );
        let hosts = &self.hosts;
        let crosses = self.crosses.entry(slot).or_insert_with(|| {
            sums(
                hosts
                    .iter()
                    .map(|host| u32::from(host.slots.contains(&slot))),
            )
        });
        let crosses = std::mem::take(crosses);
        let cross_rank = self.in_front(&crosses, index, own.is_some(), counted.cross_rank);
        self.crosses.insert(slot, crosses);
        Place {
            rank: Rank(rank % counted.size.max(1)),
            cross_rank,
            ..counted
        }
    }

    /// The number of slots before a host. `sums` are those of the hosts with survivors. The host is the `index`-th of
    /// them (`old`), or precedes it in the order of arrival. `counted` slots arrived before the host.
    fn in_front(&self, sums: &[u32], index: usize, old: bool, counted: u32) -> u32 {
        match self.leader {
            _ if !old => sums[self.hosts.len()] + counted - sums[index],
            Some(leader) if leader == index => 0,
            Some(leader) if leader > index => sums[index] + sums[leader + 1] - sums[leader],
            _ => sums[index],
        }
    }
}

impl Host {
    /// The number of workers on this host that precede a new one in `slot`.
    fn before(&self, slot: LocalRank) -> u32 {
        let new = |other: &&LocalRank| **other < slot && !self.survivors.contains(other);
        (self.survivors.len() + self.slots.iter().filter(new).count()) as u32
    }
}

/// The sum before each element, and of all.
fn sums(counts: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut sum = 0;
    let add = |count| {
        sum += count;
        sum
    };
    std::iter::once(0).chain(counts.map(add)).collect()
}

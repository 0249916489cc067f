//! Capacity: the slots that may be used now, with those of the [`Reserve`]. It is counted again when hosts went away, or
//! the blacklist or the reserve changed. A new host is only added: ten thousand hosts that register themselves cost ten
//! thousand additions.

use std::collections::BTreeMap;

use elasticrun_protocol::{HostId, LocalRank, Rank, control::Place};

use super::reserve::Reserve;
use crate::{
    blacklist::Blacklist,
    hosts::HostSet,
    mutant::{Mutant, planted},
};

/// The position of a slot among all usable slots.
#[derive(Clone, Copy, Debug)]
struct Standing {
    rank: u32,
    cross_rank: u32,
}

/// The usable slots of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usable<'a>(Option<&'a BTreeMap<LocalRank, Standing>>);

impl Usable<'_> {
    /// Whether a slot may be used.
    pub(super) fn has(&self, slot: LocalRank) -> bool {
        self.0.is_some_and(|slots| slots.contains_key(&slot))
    }
}

/// The usable slots of the job.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    max: Option<u32>,
    slots: BTreeMap<HostId, BTreeMap<LocalRank, Standing>>,
    /// Hosts with a usable slot, in order of arrival.
    order: Vec<HostId>,
    /// The number of hosts that have a usable slot of each local rank.
    crosses: BTreeMap<LocalRank, u32>,
    total: u32,
    /// Slots of known hosts, including draining hosts.
    known: u32,
    /// The known slots that are out for good.
    lost: u32,
    /// The usable slots of draining hosts.
    reserve: Reserve,
}

impl Capacity {
    /// Counts the slots of the hosts that `may_use` allows, and those of the reserve. `max` is the maximum size of a
    /// round.
    pub(super) fn count(
        hosts: &HostSet,
        blacklist: &Blacklist,
        max: Option<u32>,
        reserve: Reserve,
        may_use: impl Fn(&HostId) -> bool,
    ) -> Self {
        let mut capacity = Self {
            max,
            ..Self::default()
        };
        for host in hosts.in_order().into_iter().filter(|host| may_use(host)) {
            if hosts.slots(host) > 0 {
                capacity.add(host, hosts.slots(host), blacklist);
                continue;
            }
            // The host is draining, so only the slots of the reserve are usable. The others are not out for good either.
            capacity.note_known(host, hosts.known_slots(host), blacklist);
            capacity.insert(host, reserve.slots(host), blacklist);
        }
        capacity.reserve = reserve;
        capacity
    }

    /// Adds a host that is last in the order of arrival.
    pub(super) fn add(&mut self, host: &HostId, slots: u32, blacklist: &Blacklist) {
        self.note_known(host, slots, blacklist);
        self.insert(host, (0..slots).map(LocalRank), blacklist);
    }

    fn insert(
        &mut self,
        host: &HostId,
        slots: impl Iterator<Item = LocalRank>,
        blacklist: &Blacklist,
    ) {
        let mut usable = BTreeMap::new();
        for slot in slots {
            if blacklist.is_out(host, slot) {
                continue;
            }
            let cross = self.crosses.entry(slot).or_default();
            usable.insert(
                slot,
                Standing {
                    rank: self.total,
                    cross_rank: *cross,
                },
            );
            *cross += 1;
            self.total += 1;
        }
        if !usable.is_empty() {
            self.order.push(host.clone());
            self.slots.insert(host.clone(), usable);
        }
    }

    fn note_known(&mut self, host: &HostId, slots: u32, blacklist: &Blacklist) {
        let lost = |slot: &LocalRank| {
            blacklist.is_out_for_good(host, *slot)
                || planted(Mutant::AllOutHasty) && blacklist.is_out(host, *slot)
        };
        self.known += slots;
        self.lost += (0..slots).map(LocalRank).filter(lost).count() as u32;
    }

    /// The usable slots of draining hosts.
    pub(super) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// The number of usable slots.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// The number of slots of known hosts, including those that are out and those of draining hosts.
    pub(super) fn known(&self) -> u32 {
        self.known
    }

    /// Whether hosts are known, and every slot of them is out for good.
    pub(super) fn all_lost(&self) -> bool {
        self.known > 0 && self.lost == self.known
    }

    /// Hosts with a usable slot, in order of arrival.
    pub(super) fn order(&self) -> &[HostId] {
        &self.order
    }

    /// Whether a host has a usable slot.
    pub(super) fn has(&self, host: &HostId) -> bool {
        self.slots.contains_key(host)
    }

    /// The number of usable slots of all hosts that arrived before this one; `None` if this host has no usable slot.
    pub(super) fn first(&self, host: &HostId) -> Option<u32> {
        let (_, standing) = self.slots.get(host)?.first_key_value()?;
        Some(standing.rank)
    }

    /// The usable slots of a host, with the place that a worker there would have if all slots were filled.
    pub(super) fn slots(&self, host: &HostId) -> impl Iterator<Item = (LocalRank, Place)> + '_ {
        let slots = self.slots.get(host);
        let local_size = slots.map_or(0, |slots| slots.len() as u32);
        let size = self.max.map_or(self.total, |max| max.min(self.total));
        slots.into_iter().flatten().map(move |(slot, standing)| {
            let place = Place {
                // A spare gets the rank of the worker that it may replace. It waits, so the rank is only in its
                // environment.
                rank: Rank(standing.rank % size.max(1)),
                size,
                local_size,
                cross_rank: standing.cross_rank,
                cross_size: self.crosses.get(slot).copied().unwrap_or(1),
                local_rank: None,
            };
            (*slot, place)
        })
    }

    /// The usable slots of a host.
    pub(super) fn local_ranks(&self, host: &HostId) -> impl Iterator<Item = LocalRank> + '_ {
        let slots = self.slots.get(host);
        slots.into_iter().flat_map(|slots| slots.keys().copied())
    }

    /// Whether a slot may be used.
    pub(super) fn is_usable(&self, host: &HostId, slot: LocalRank) -> bool {
        self.of_host(host).has(slot)
    }

    /// The usable slots of a host, to look several of them up.
    pub(super) fn of_host(&self, host: &HostId) -> Usable<'_> {
        Usable(self.slots.get(host))
    }
}

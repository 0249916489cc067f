//! Capacity: the slots that may be used now, counted when hosts or the blacklist have changed.

use std::collections::BTreeMap;

use elasticrun_protocol::{HostId, LocalRank, control::Place};

use crate::{assignment, blacklist::Blacklist, hosts::HostSet};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    /// Usable slots by host, with the place that a worker there would have if all were filled.
    slots: BTreeMap<HostId, BTreeMap<LocalRank, Place>>,
    /// Hosts in order of arrival that have a usable slot.
    order: Vec<HostId>,
    total: u32,
    hopeful: u32,
}

impl Capacity {
    /// Counts. `max` is the size that a round can have at most.
    pub(super) fn count(hosts: &HostSet, blacklist: &Blacklist, max: Option<u32>) -> Self {
        let mut capacity = Self::default();
        let mut ordered = Vec::new();
        for host in hosts.in_order() {
            let before = ordered.len();
            for slot in (0..hosts.slots(host)).map(LocalRank) {
                if !blacklist.is_out(host, slot) {
                    ordered.push((host, slot));
                }
                if !blacklist.is_out_for_good(host, slot) {
                    capacity.hopeful += 1;
                }
            }
            if ordered.len() > before {
                capacity.order.push(host.clone());
            }
        }
        capacity.total = ordered.len() as u32;
        let members = ordered
            .len()
            .min(max.map_or(usize::MAX, |max| max as usize));
        let mut places = assignment::places(&ordered[..members]);
        // Spares beyond the largest round: they wait, so the values are only those of an environment.
        places.extend(assignment::places(&ordered[members..]));
        for ((host, slot), place) in ordered.into_iter().zip(places) {
            capacity
                .slots
                .entry(host.clone())
                .or_default()
                .insert(slot, place);
        }
        capacity
    }

    /// Usable slots.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// Slots of known hosts that are not out for good.
    pub(super) fn hopeful(&self) -> u32 {
        self.hopeful
    }

    /// Hosts with a usable slot, in order of arrival.
    pub(super) fn order(&self) -> &[HostId] {
        &self.order
    }

    /// Usable slots of a host with the place a worker there would have.
    pub(super) fn slots(&self, host: &HostId) -> impl Iterator<Item = (LocalRank, Place)> + '_ {
        self.slots
            .get(host)
            .into_iter()
            .flatten()
            .map(|(slot, place)| (*slot, *place))
    }

    /// Whether a slot may be used.
    pub(super) fn is_usable(&self, host: &HostId, slot: LocalRank) -> bool {
        self.slots
            .get(host)
            .is_some_and(|slots| slots.contains_key(&slot))
    }
}

//! The reserve: slots of draining hosts that the job still needs.
//!
//! - Workers of draining hosts train on while fewer than `min_np` workers on other hosts are at `run()` or in a round. This
//!   holds in every phase: also for a host whose notice comes while a round is left or formed.
//! - All draining hosts with time left are in the reserve. If all hosts of a job are to go, all of its workers train on.
//! - Only workers that are at `run()` or in a round stay. No process is started in the reserve, and a round that trains is
//!   not interrupted to add one of its workers.
//! - Groups have no reserve. All their processes end together, so no worker is left that could stay.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{HostId, LocalRank};

use super::Job;
use crate::{
    Time,
    fleet::{Host, Life, Live},
    mutant::{Mutant, planted},
};

/// Slots of draining hosts whose workers train on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reserve(BTreeMap<HostId, BTreeSet<LocalRank>>);

impl Reserve {
    /// The hosts of the reserve.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &HostId> {
        self.0.keys()
    }

    /// The slots of a host that are in the reserve.
    pub(super) fn slots(&self, host: &HostId) -> impl Iterator<Item = LocalRank> + '_ {
        self.0.get(host).into_iter().flatten().copied()
    }
}

impl Job {
    /// The usable slots of draining hosts that are needed now.
    pub(super) fn reserve(&self) -> Reserve {
        let patient = |host: &&HostId| {
            self.may_wait_for_others(self.now, host) || planted(Mutant::ReserveNeverDue)
        };
        let mut patient = self.hosts.draining().filter(patient).peekable();
        if patient.peek().is_none() || !self.settings.elastic || self.groups.leads() {
            return Reserve::default();
        }
        let enough = self.enough_stay() && !planted(Mutant::ReserveAlways);
        if enough || planted(Mutant::ReserveUnused) {
            return Reserve::default();
        }
        let slots = patient.filter_map(|host| {
            let state = self.fleet.host(host).filter(|state| state.up().is_some())?;
            let mut slots: BTreeSet<_> = there(state).map(|live| live.process.local_rank).collect();
            let known = self.hosts.known_slots(host);
            if planted(Mutant::ReserveFilled) {
                slots.extend((0..known).map(LocalRank));
            }
            slots.retain(|slot| slot.0 < known && !self.blacklist.is_out(host, *slot));
            (!slots.is_empty()).then(|| (host.clone(), slots))
        });
        Reserve(slots.collect())
    }

    /// Whether the workers of a draining host may train on while too few others can.
    pub(super) fn may_wait_for_others(&self, now: Time, host: &HostId) -> bool {
        let never = planted(Mutant::DrainNeverDue);
        (self.hosts.drain_due(host)).is_some_and(|due| now < due || never)
            && !planted(Mutant::DrainImpatient)
    }

    /// Whether enough workers for a round are there on hosts that do not drain.
    pub(super) fn enough_stay(&self) -> bool {
        // As for a choice of members: if no worker trains, hosts with a pending probe are better than none.
        let idle = self.trains_on().is_none();
        let hosts = (self.fleet.hosts()).filter(|(host, state)| {
            state.up().is_some() && self.hosts.slots(host) > 0 && (idle || self.may_join(host))
        });
        let usable = |host: &HostId, slot: LocalRank| {
            slot.0 < self.hosts.slots(host) && !self.blacklist.is_out(host, slot)
        };
        let workers = hosts.flat_map(|(host, state)| {
            there(state).filter(move |live| usable(host, live.process.local_rank))
        });
        let needed = self.settings.min_np as usize;
        workers.take(needed).count() == needed
    }
}

/// The workers of a host that are at `run()`, on their way back to it, or in a round.
fn there(host: &Host) -> impl Iterator<Item = Live> + '_ {
    host.live().filter(|live| {
        matches!(
            live.life,
            Life::Waiting | Life::Returning { .. } | Life::Training { .. }
        )
    })
}

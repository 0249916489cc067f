//! Launches of agents in batches: a launcher such as ssh takes processes, sockets and time of the driver's machine.
//!
//! - At most [`Settings::launches_at_once`](crate::Settings::launches_at_once) launches are young: they began less than
//!   [`YOUNG`] ago, and their agent has neither connected nor failed.
//! - A launch that hangs holds up no other host for longer than [`YOUNG`].
//! - The start timeout of a host counts from its own launch, not from the time when its slot was first wanted.
//!
//! Cost: O(launches at once) for each call while hosts wait, O(log hosts) for each host that begins to wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::HostId;

use super::{Job, Out};
use crate::{
    Command, Time,
    fleet::{Agent, Fleet},
    mutant::{Mutant, planted},
};

/// How long a launch without a result counts. Later it most likely hangs.
const YOUNG: Duration = Duration::from_secs(10);

/// Launches without a result, and hosts that wait for theirs.
#[derive(Clone, Debug, Default)]
pub(super) struct Launches {
    /// When each young launch began. Launches that have a result since are dropped at the next one.
    young: BTreeMap<HostId, Time>,
    /// Hosts whose agents are wanted and not launched yet.
    waiting: BTreeSet<HostId>,
}

impl Job {
    /// Launches the agents of these hosts, as many as may be launched at once. The others wait.
    pub(super) fn launch(&mut self, now: Time, hosts: Vec<HostId>, out: &mut Out) {
        let itself = self.settings.self_registration;
        let room = if itself {
            usize::MAX
        } else {
            self.launch_room(now)
        };
        for (index, host) in hosts.into_iter().enumerate() {
            if index >= room {
                self.launches.waiting.insert(host);
                continue;
            }
            if index == 0 {
                let fleet = &self.fleet;
                let young = |host: &HostId, since: &mut Time| is_young(fleet, now, host, *since);
                self.launches.young.retain(young);
            }
            let state = self.fleet.host_mut(&host);
            (state.agent, state.since) = (Agent::Launching { since: now }, now);
            self.starts.push_back((now, host.clone(), None));
            if !itself {
                self.launches.young.insert(host.clone(), now);
                out.push(Command::Launch { host });
            }
        }
    }

    /// Moves hosts that wait for their launch to the hosts that are checked for free slots: as many as may be launched if
    /// `all` slots are wanted, otherwise all of them, since others may have taken their place.
    pub(super) fn recall_launches(&mut self, now: Time, all: bool) {
        if !all {
            return self.dirty_hosts.append(&mut self.launches.waiting);
        }
        if self.launches.waiting.is_empty() {
            return;
        }
        let mut room = self.launch_room(now);
        while room > 0
            && let Some(host) = self.launches.waiting.pop_first()
        {
            // A host that is not wanted any more makes room for the next one.
            if self.is_launchable(&host) {
                self.dirty_hosts.insert(host);
                room -= 1;
            }
        }
    }

    /// Whether a host has a slot that may be used and is free, and no agent.
    fn is_launchable(&self, host: &HostId) -> bool {
        let state = self.fleet.host(host);
        let mut slots = self.capacity.local_ranks(host);
        slots.any(|slot| {
            state.is_none_or(|state| state.agent == Agent::Absent && state.is_free(slot))
                && !self.may_come_back_with_workers(host)
        })
    }

    /// The number of launches that may begin now.
    pub(super) fn launch_room(&self, now: Time) -> usize {
        if planted(Mutant::LaunchesUnlimited) {
            return usize::MAX;
        }
        let young = (self.launches.young.iter())
            .filter(|(host, since)| is_young(&self.fleet, now, host, **since));
        (self.settings.launches_at_once).saturating_sub(young.count())
    }

    /// When a launch without a result most likely hangs, so that another one may begin.
    pub(super) fn next_launch_room(&self, now: Time) -> Option<Time> {
        let young = (self.launches.young.iter())
            .filter(|(host, since)| is_young(&self.fleet, now, host, **since));
        young.map(|(_, since)| *since + YOUNG).min()
    }

    /// When a launch that most likely hangs makes room for a host that waits.
    pub(super) fn next_launch(&self) -> Option<Time> {
        if self.launches.waiting.is_empty() || planted(Mutant::LaunchesUnscheduled) {
            return None;
        }
        let ends = self.launches.young.values().map(|since| *since + YOUNG);
        // An end that was due at the last event was handled then, unless a round forms. Its start leads to a new check.
        ends.filter(|end| *end > self.settled).min()
    }
}

/// Whether a launch that began at `since` has no result and may still have one soon.
fn is_young(fleet: &Fleet, now: Time, host: &HostId, since: Time) -> bool {
    let launching = Agent::Launching { since };
    let lasts = (fleet.host(host)).is_some_and(|state| state.agent == launching);
    lasts && (now < since + YOUNG || planted(Mutant::LaunchesStuck))
}

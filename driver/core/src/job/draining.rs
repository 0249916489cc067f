//! Hosts that will go away: their workers leave at a common commit, then the host is released.
//!
//! ```text
//!   notice or list        workers leave (planning)        nothing there is needed
//!   ------------> draining ---------------------> idle ---------------------------> drained, agent dismissed
//! ```
//!
//! - The loss of a draining host is no failure, even before its workers have left. A standard job ends with it, and names it
//!   as the failure.
//! - If too few workers could train without it, its workers train on until the host's time is almost over
//!   ([`super::reserve`]).
//! - A host that still drains when the job ends is drained once its agent has ended.
//! - A notice of an agent holds as long as the agent's connection, whatever the lists contain. It also holds for a host
//!   that was missing from the lists for a while (R6).

use elasticrun_protocol::{AgentCommand, HostId, Notice};

use super::{Job, Out, reject};
use crate::{
    Command, Decision, Departure, Rejected, Time,
    fleet::{Host, Life},
    mutant::{Mutant, planted},
    rounds::Phase,
};

/// The number of recent notices of a host among which a repeat is recognised.
const REMEMBERED: usize = 16;

impl Job {
    /// Handles the news that a host will go away, or may.
    pub(super) fn noticed(&mut self, now: Time, host: &HostId, notice: Notice, out: &mut Out) {
        if !self.hosts.contains(host) {
            return reject(out, host, Rejected::UnknownHost);
        }
        // In a standard job no worker could continue elsewhere.
        let risk = notice.kind.is_risk_only() && !planted(Mutant::RiskDrains);
        if risk || !self.settings.elastic {
            let host = host.clone();
            return out.push(Command::Announce(Decision::AtRisk { host, notice }));
        }
        if self.hosts.noticed(now, host, notice.within) {
            self.drain_begins(host, notice, out);
        }
    }

    /// Handles a notice of the agent of a host.
    pub(super) fn noticed_by_agent(
        &mut self,
        now: Time,
        host: &HostId,
        notice: Notice,
        out: &mut Out,
    ) {
        if let Some(up) = self.fleet.up_mut(host) {
            if up.said.contains(&notice) {
                return;
            }
            up.said.push_back(notice);
            if up.said.len() > REMEMBERED {
                up.said.pop_front();
            }
        }
        if self.settings.elastic && !notice.kind.is_risk_only() {
            let due = |(at, notice): (Time, Notice)| at + notice.within.unwrap_or_default();
            if let Some(up) = self.fleet.up_mut(host) {
                let first = up.notice.into_iter().chain([(now, notice)]);
                up.notice = first.min_by_key(|notice| due(*notice));
            }
        }
        self.noticed(now, host, notice, out);
    }

    /// Applies notices again after a list: the list may have added hosts whose agents sent a notice before.
    pub(super) fn recall_notices(&mut self, out: &mut Out) {
        let forgotten = |(host, state): (&HostId, &Host)| {
            let (at, notice) = state.last_up()?.notice?;
            let forgotten = self.hosts.contains(host) && !self.hosts.is_noticed(host);
            forgotten.then(|| (host.clone(), at, notice))
        };
        let recalled: Vec<_> = self.fleet.hosts().filter_map(forgotten).collect();
        for (host, at, notice) in recalled {
            self.noticed(at, &host, notice, out);
        }
    }

    pub(super) fn drain_begins(&mut self, host: &HostId, notice: Notice, out: &mut Out) {
        let host = host.clone();
        out.push(Command::TellSources {
            host: host.clone(),
            state: Departure::Draining,
        });
        out.push(Command::Announce(Decision::Draining { host, notice }));
        self.capacity_dirty = true;
    }

    /// Whether members of the round that trains must leave their hosts now. They must if a slot has gone, if draining
    /// hosts can be spared, or if the time of a draining host is almost over.
    pub(super) fn must_leave(&self, now: Time) -> bool {
        let Phase::Training(training) = &self.rounds.phase else {
            return false;
        };
        let unusable = |(host, members): (&HostId, &Vec<elasticrun_protocol::Process>)| {
            let gone =
                |p: &elasticrun_protocol::Process| !self.capacity.is_usable(host, p.local_rank);
            members.iter().any(gone).then(|| host.clone())
        };
        let hosts: Vec<_> = training.members.iter().filter_map(unusable).collect();
        if planted(Mutant::IdleDrainInterrupts) && self.hosts.draining().next().is_some() {
            return true;
        }
        let impatient = |host: &HostId| !self.may_wait_for_others(now, host);
        hosts.iter().any(impatient) || !hosts.is_empty() && self.enough_stay()
    }

    /// The number of workers on draining hosts that are in a round or may be in the next one: other workers take their
    /// place.
    pub(super) fn leaving(&self) -> usize {
        let leaves = |life| !matches!(life, Life::Starting { .. } | Life::Stopping);
        let live = |host| {
            self.fleet
                .host(host)
                .into_iter()
                .flat_map(|state| state.live())
        };
        (self.hosts.draining())
            .flat_map(live)
            .filter(|live| leaves(live.life))
            .count()
    }

    /// When workers must leave a draining host at the latest.
    pub(super) fn next_drain_due(&self) -> Option<Time> {
        let members = match &self.rounds.phase {
            Phase::Training(training) if training.hold.is_none() => Some(&training.members),
            _ => None,
        };
        let is_member = |host: &&HostId| members.is_some_and(|members| members.contains_key(*host));
        let due = |host| self.hosts.drain_due(host).filter(|due| *due > self.settled);
        (self.hosts.draining().filter(is_member))
            .chain(self.capacity.reserve().hosts())
            .filter_map(due)
            .min()
    }

    /// Releases draining hosts that run nothing and keep nothing that could be needed.
    pub(super) fn finish_drains(&mut self, out: &mut Out) {
        if planted(Mutant::NeverDrained) {
            return;
        }
        let done: Vec<_> = (self.hosts.draining())
            .filter(|host| !self.away.contains(*host) && !self.may_come_back_with_workers(host))
            .filter(|host| !self.servers.runs_on(host))
            .filter(|host| match self.fleet.host(host) {
                Some(state) => {
                    state.live().next().is_none() && (!state.has_memory || self.base_is_held())
                }
                None => true,
            })
            .cloned()
            .collect();
        for host in done {
            self.drained(&host, out);
            if self
                .fleet
                .host(&host)
                .is_some_and(|state| state.up().is_some())
            {
                self.send(&host, AgentCommand::Shutdown, out);
                self.disconnect(&host, out);
            }
            self.lose_agent(&host);
            if self.settings.self_registration {
                self.hosts.forget(&host);
                self.capacity_dirty = true;
            }
        }
    }

    /// After the end of the job: releases draining hosts whose agents are gone.
    pub(super) fn finish_drains_after_end(&mut self, out: &mut Out) {
        let gone =
            |host: &&HostId| (self.fleet.host(host)).is_none_or(|state| state.last_up().is_none());
        let done: Vec<_> = self.hosts.draining().filter(gone).cloned().collect();
        for host in done {
            self.drained(&host, out);
        }
    }

    fn drained(&mut self, host: &HostId, out: &mut Out) {
        self.hosts.drained(host);
        let host = host.clone();
        out.push(Command::TellSources {
            host: host.clone(),
            state: Departure::Drained,
        });
        out.push(Command::Announce(Decision::Drained { host }));
    }

    /// Whether members of the round that trains hold its base and none is leaving, so that no fetch from another host
    /// is needed. Of a divided base each may need all shards, until all have sealed commit 0 of the round. Workers in groups commit nothing.
    pub(super) fn base_is_held(&self) -> bool {
        if self.groups.leads() {
            return true;
        }
        let Phase::Training(training) = &self.rounds.phase else {
            return false;
        };
        training.holders > 0 && training.hold.is_none()
    }
}

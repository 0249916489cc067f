//! Probing: a newcomer is admitted to a round that trains if it reaches the hosts of that round.
//!
//! When workers of a host outside of the round wait, the job asks the host's agent to dial hosts of the round
//! ([`AgentCommand::Probe`]). A host that reaches all of them may join. A host that does not has failed, and the round
//! trains on. Each host is probed once for each round that trains without it.
//!
//! The job sends no probe where it would cost time or change nothing. These cases are: before the first round, in a
//! recovery, to hosts of the round that trains, and to agents that do not support probes. A host with a pending probe
//! is left out of a recovery that can do without it.
//!
//! Not promised: that hosts of the round can dial the newcomer, that its workers reach the data ports of theirs, or
//! that it reaches all hosts of a large round. Such a fault breaks the first round, and [`crate::suspicion`] blames the
//! newcomer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use elasticrun_protocol::{AgentCommand, DriverEpoch, HostId, Process, control::ProbeHost};

use super::{Job, Out, reject};
use crate::{
    Rejected, Time,
    blacklist::Domain,
    mutant::{Mutant, planted},
    rounds::Phase,
};

/// Maximum number of hosts of the round that a newcomer dials.
const MOST: usize = 8;

/// A pending probe of a host.
#[derive(Clone, Debug)]
struct Asked {
    host: HostId,
    members: Vec<HostId>,
    since: Time,
    until: Time,
}

/// The probes of newcomers.
#[derive(Clone, Debug, Default)]
pub(super) struct Probing {
    /// The number of the last probe.
    last: u64,
    /// Hosts whose agents support probes.
    able: BTreeSet<HostId>,
    /// Pending probes by number: the oldest one times out first.
    asked: BTreeMap<u64, Asked>,
    /// Hosts outside of the round that trains, with the number of their probe: pending, or passed.
    hosts: BTreeMap<HostId, u64>,
    /// Hosts with waiting workers, which may need a probe.
    look: BTreeSet<HostId>,
}

impl Probing {
    /// Records that the agent of a host has connected.
    pub(super) fn connected(&mut self, host: &HostId, probes: bool) {
        self.forget(host);
        if probes {
            self.able.insert(host.clone());
        }
    }

    /// Numbers the probes of a later driver. An agent ignores a number that it knows.
    pub(super) fn continue_from(&mut self, epoch: DriverEpoch) {
        self.last = epoch.0 << 32;
    }

    /// Records that the agent of a host is gone.
    pub(super) fn forget(&mut self, host: &HostId) {
        self.able.remove(host);
        self.look.remove(host);
        self.drop_probe(host);
    }

    /// Records that a worker of a host waits.
    pub(super) fn look(&mut self, host: &HostId) {
        if self.able.contains(host) {
            self.look.insert(host.clone());
        }
    }

    /// Drops the pending probe of a host that is planned for a round without its answer.
    pub(super) fn planned(&mut self, host: &HostId) {
        if self.is_asked(host) {
            self.drop_probe(host);
        }
    }

    /// Drops all probes, which were about another round. The hosts of `waiting` may need a new one.
    pub(super) fn round_started<'a>(&mut self, waiting: impl Iterator<Item = &'a HostId>) {
        self.asked.clear();
        self.hosts.clear();
        self.look.clear();
        waiting.for_each(|host| self.look(host));
    }

    /// When the next pending probe times out.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.asked.first_key_value().map(|(_, asked)| asked.until)
    }

    fn is_asked(&self, host: &HostId) -> bool {
        (self.hosts.get(host)).is_some_and(|number| self.asked.contains_key(number))
    }

    fn has_passed(&self, host: &HostId) -> bool {
        (self.hosts.get(host)).is_some_and(|number| !self.asked.contains_key(number))
    }

    fn drop_probe(&mut self, host: &HostId) {
        if let Some(number) = self.hosts.remove(host) {
            self.asked.remove(&number);
        }
    }
}

impl Job {
    /// The members of the round that trains, even while they run to the boundary where they leave it.
    pub(super) fn trains_on(&self) -> Option<&BTreeMap<HostId, Vec<Process>>> {
        match &self.rounds.phase {
            Phase::Idle => None,
            Phase::Training(training) => Some(&training.members),
            Phase::Forming(forming) => forming.leaving.as_ref().map(|left| &left.members),
        }
    }

    /// Whether a host may be in the next round: it is in the round that trains, or reaches it and does not drain. If no
    /// round trains, its probe must not be pending, since that may show that it reaches no host.
    pub(super) fn may_join(&self, host: &HostId) -> bool {
        match self.trains_on() {
            _ if planted(Mutant::NewcomerUnasked) => true,
            Some(members) => {
                let able = self.settings.elastic && self.probing.able.contains(host);
                let admitted = || !able || self.probing.has_passed(host);
                members.contains_key(host) || !self.hosts.is_draining(host) && admitted()
            }
            None => !self.probing.is_asked(host),
        }
    }

    /// Whether a worker waits that may join, on a host that does not drain.
    pub(super) fn has_admitted(&self) -> bool {
        let stays = |host: &HostId| !self.hosts.is_draining(host);
        (self.waitlist.iter()).any(|(host, _)| stays(host) && self.may_join(host))
    }

    /// Whether a probe of a newcomer is pending, so that the newcomer may still join.
    pub(super) fn is_asking(&self) -> bool {
        self.trains_on().is_some() && !self.probing.asked.is_empty()
    }

    /// Probes the hosts with waiting workers, unless they were probed for this round.
    pub(super) fn ask_newcomers(&mut self, now: Time, out: &mut Out) {
        for host in std::mem::take(&mut self.probing.look) {
            if self.hosts.is_draining(&host) {
                // A list may take that back.
                self.probing.look(&host);
            } else if !self.may_join(&host) && !self.probing.hosts.contains_key(&host) {
                self.ask(now, host, out);
            }
        }
    }

    fn ask(&mut self, now: Time, newcomer: HostId, out: &mut Out) {
        self.probing.last += 1;
        let (number, within) = (self.probing.last, self.settings.probe_timeout);
        let hosts = self.hosts_to_dial(number);
        // Doubled: the limit for each dialled host, and the time for the command and its report.
        let endless = planted(Mutant::ProbeWithoutEnd);
        let asked = Asked {
            host: newcomer.clone(),
            members: hosts.iter().map(|probed| probed.host.clone()).collect(),
            since: now,
            until: now + within * if endless { 2000 } else { 2 },
        };
        self.probing.asked.insert(number, asked);
        self.probing.hosts.insert(newcomer.clone(), number);
        let probe = AgentCommand::Probe {
            number,
            hosts,
            within,
        };
        self.send(&newcomer, probe, out);
    }

    /// Up to [`MOST`] hosts of the round that trains, evenly chosen; others each time.
    fn hosts_to_dial(&self, number: u64) -> Vec<ProbeHost> {
        let address = |host: &HostId| {
            let up = self.fleet.host(host)?.up()?;
            Some(ProbeHost {
                host: host.clone(),
                address: SocketAddr::new(up.address, up.memory_port),
            })
        };
        let members = self.trains_on().into_iter().flat_map(BTreeMap::keys);
        let all: Vec<_> = members.filter_map(address).collect();
        let stride = all.len().div_ceil(MOST).max(1);
        let first = (number % stride as u64) as usize;
        all.into_iter().skip(first).step_by(stride).collect()
    }

    /// Handles the result of a probe.
    pub(super) fn probed(
        &mut self,
        now: Time,
        host: &HostId,
        number: u64,
        unreachable: &[HostId],
        out: &mut Out,
    ) {
        let current = self.probing.hosts.get(host).copied();
        let number = match current {
            Some(current) if planted(Mutant::StaleProbe) => current,
            _ => number,
        };
        if current != Some(number) {
            return reject(out, host, Rejected::StaleProbe(number));
        }
        let Some(asked) = self.probing.asked.get(&number) else {
            return reject(out, host, Rejected::Repeated);
        };
        let missing = (asked.members.iter()).filter(|member| unreachable.contains(member));
        let (missing, gone): (Vec<_>, Vec<_>) = missing.partition(|member| self.is_up(member));
        if missing.is_empty() || planted(Mutant::ProbeIgnored) {
            let unknown = !gone.is_empty();
            self.probing.asked.remove(&number);
            if unknown {
                // A host that is gone meanwhile was unreachable for that reason. It may return to the round.
                self.probing.hosts.remove(host);
                self.probing.look(host);
            }
            return;
        }
        let missing: Vec<_> = missing.into_iter().map(HostId::as_str).collect();
        let why = format!(
            "it cannot reach {}, where others train; check the network and --network-interface",
            missing.join(", ")
        );
        self.refuse_newcomer(now, number, why, out);
    }

    /// Handles probes that have timed out.
    pub(super) fn end_slow_probes(&mut self, now: Time, out: &mut Out) {
        while let Some((number, asked)) = self.probing.asked.first_key_value()
            && asked.until <= now
        {
            let why = "it did not say in time whether it reaches the hosts that train".to_owned();
            self.refuse_newcomer(now, *number, why, out);
        }
    }

    /// Fails a newcomer, which may try again after its cooldown. The failure began with the probe. A host that drains or
    /// has no waiting workers does not fail.
    fn refuse_newcomer(&mut self, now: Time, number: u64, why: String, out: &mut Out) {
        let Some(Asked { host, since, .. }) = self.probing.asked.remove(&number) else {
            return;
        };
        self.probing.hosts.remove(&host);
        if self.hosts.is_draining(&host) {
            self.probing.look(&host);
        } else if self.waitlist.iter().any(|(other, _)| *other == host) {
            self.note_host_failure(&host, why, out);
            self.domain_failed(now, Domain::Host(host), since, out);
        }
    }
}

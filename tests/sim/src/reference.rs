//! The hosts that the job should know and use, computed from the events that it receives.
//!
//! This code follows the words of the contract and is independent of the core's HostSet and Blacklist on purpose.
//! A host is removed when it is missing twice or reported gone. A draining host keeps its place and gives no
//! slots; its workers may stay for a while if they are needed. The job's decision gives the end of an exclusion; the reference checks that the domain stays excluded
//! until then.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_core::{
    AgentConnected, Decision, Event, Request, Settings, Time,
    blacklist::{Domain, Out},
    journal::{HostEntry, OutEntry, Saved},
};
use elasticrun_hosts::HostState;
use elasticrun_protocol::{HostId, LocalRank, Notice, NoticeKind};

use crate::listed::Listed;

#[derive(Clone, Debug)]
struct Known {
    slots: u32,
    draining: bool,
    /// The host drains by a notice, which no list takes back.
    noticed: bool,
    /// Until when the workers of a draining host may train on if too few others could.
    due: Option<Time>,
}

/// The longest time that workers get to leave a host.
const MARGIN: Duration = Duration::from_secs(30);

impl Known {
    /// The host drains, and goes after `within` if that is known.
    fn drains(&mut self, now: Time, within: Option<Duration>) {
        let left = within.unwrap_or_default();
        let due = now + left.saturating_sub(MARGIN.min(left / 2));
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
        self.draining = true;
    }
}

/// The expected hosts and exclusions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    sources: Listed,
    known: BTreeMap<HostId, Known>,
    out: BTreeMap<Domain, Out>,
    /// Domains that failed since the round that started last.
    recent: Vec<Domain>,
    /// How often each host has lost its place in the order.
    moves: BTreeMap<HostId, u32>,
    /// The order of arrival. A host that was away comes last.
    arrivals: BTreeMap<HostId, u64>,
    /// Hosts that came with this event. Deadlines that are due take effect before it.
    fresh: Vec<HostId>,
    /// How often each host has lost slots.
    shrinks: BTreeMap<HostId, u32>,
    pub(crate) discovered: bool,
    pub(crate) fatal: bool,
    /// Notices of connected agents: the time of the notice and the time left. Of several, the one that is due
    /// first counts.
    said: BTreeMap<HostId, (Time, Option<Duration>)>,
    /// The user has asked the job to end.
    pub(crate) stopped: bool,
    elastic: bool,
    /// Hosts register themselves: one that is out of reach has no slots.
    itself: bool,
    /// Hosts that are out of reach and may return, and whether a round was planned since.
    away: BTreeMap<HostId, bool>,
    /// Hosts that registered themselves with a former driver and have not come back. They keep their places until its
    /// take-over ends.
    expected: BTreeSet<HostId>,
}

impl Reference {
    pub(crate) fn of(settings: &Settings) -> Self {
        Self {
            elastic: settings.elastic,
            itself: settings.self_registration,
            sources: Listed::of(settings.sources, settings.slots_per_host),
            ..Self::default()
        }
    }

    /// A later driver begins with these records. Its clock begins anew.
    pub(crate) fn resumed(&mut self, saved: &Saved) {
        let known = |entry: &HostEntry| Known {
            slots: entry.slots,
            draining: entry.drain.is_some(),
            noticed: entry.drain.is_some_and(|drain| drain.noticed),
            due: entry.drain.map(|drain| Time::ZERO + drain.left),
        };
        let end = |out: &OutEntry| match out {
            OutEntry::For(left) => Out::Until(Time::ZERO + *left),
            OutEntry::ForGood => Out::ForGood,
        };
        let (hosts, domains) = (saved.hosts.values(), saved.domains.values());
        let listed = hosts.clone().filter(|entry| entry.listed);
        let goes = |entry: &HostEntry| entry.drain.is_some_and(|drain| !drain.noticed);
        let listed: Vec<_> = listed
            .map(|entry| (entry.host.clone(), entry.slots, goes(entry)))
            .collect();
        self.sources.resumed(&listed);
        let expected = hosts.clone().filter(|entry| entry.self_registered);
        *self = Self {
            expected: expected.map(|entry| entry.host.clone()).collect(),
            discovered: !listed.is_empty(),
            known: hosts
                .clone()
                .map(|entry| (entry.host.clone(), known(entry)))
                .collect(),
            arrivals: hosts
                .map(|entry| (entry.host.clone(), entry.arrival))
                .collect(),
            out: (domains.clone())
                .filter_map(|entry| Some((entry.domain.clone(), end(entry.out.as_ref()?))))
                .collect(),
            recent: (domains.filter(|entry| entry.recent))
                .map(|entry| entry.domain.clone())
                .collect(),
            sources: std::mem::take(&mut self.sources),
            moves: std::mem::take(&mut self.moves),
            shrinks: std::mem::take(&mut self.shrinks),
            elastic: self.elastic,
            itself: self.itself,
            ..Self::default()
        };
    }

    /// Checks that these records have all hosts, drains and exclusions for good.
    pub(crate) fn is_recorded(&self, saved: &Saved) -> Result<(), String> {
        // A host that drains gives no slots.
        let seen = |slots: u32, drains: bool| (!drains).then_some(slots);
        let known = |entry: &HostEntry| {
            let seen = seen(entry.slots, entry.drain.is_some());
            (entry.host.clone(), seen)
        };
        let recorded: BTreeMap<_, _> = saved.hosts.values().map(known).collect();
        let known =
            |(host, known): (&HostId, &Known)| (host.clone(), seen(known.slots, known.draining));
        let expected: BTreeMap<_, _> = self.known.iter().map(known).collect();
        if recorded != expected {
            return Err(format!("{expected:?} are known, and {recorded:?} recorded"));
        }
        let is_out = |domain: &Domain| {
            let entry = saved.domains.get(domain);
            entry.is_some_and(|entry| entry.out == Some(OutEntry::ForGood))
        };
        let mut out = self.out.iter().filter(|(_, out)| **out == Out::ForGood);
        match out.find(|(domain, _)| !is_out(domain)) {
            Some((domain, _)) => Err(format!("{domain} is out for good, and not by the records")),
            None => Ok(()),
        }
    }

    /// The agent of a host comes back to a later driver.
    fn came_back(&mut self, now: Time, agent: &AgentConnected, starts: u32) {
        if agent.self_registered {
            return self.see(&agent.host, agent.slots);
        }
        let changed = self
            .sources
            .found(&agent.host, agent.slots, agent.detected_slots);
        if changed {
            self.listed(now);
        }
        if !self.known.contains_key(&agent.host) && !self.sources.have_all_answered() {
            // Its record may be lost. The list decides whether it stays.
            self.see(&agent.host, starts);
        }
    }

    /// An event reaches the driver. `takes_over`: it is an agent of a former driver that comes back.
    pub(crate) fn event(&mut self, now: Time, event: &Event, takes_over: bool) {
        match event {
            Event::SourceAnswered { source, snapshot } => {
                self.sources.answered(*source, snapshot);
                self.listed(now);
            }
            Event::SourceFailed { source, fatal, .. } => {
                let first = self.sources.failed(*source);
                self.fatal |= *fatal && (first || !self.discovered);
            }
            Event::StopRequested { .. } => self.stopped = true,
            Event::Requested {
                request: Request::Drain { host, within },
                ..
            } => {
                let (kind, within) = (NoticeKind::Operator, *within);
                self.noticed(now, host, Notice { kind, within });
            }
            Event::AgentConnected(agent) if takes_over && let Some(adoption) = &agent.adoption => {
                self.expected.remove(&agent.host);
                let starts = adoption
                    .starts
                    .iter()
                    .map(|process| process.local_rank.0 + 1);
                self.came_back(now, agent, starts.max().unwrap_or(0));
            }
            // An agent that returns brings the same host back.
            Event::AgentConnected(agent) if agent.adoption.is_some() => {}
            Event::AgentConnected(agent) => {
                self.away.remove(&agent.host);
                // The new agent replaces a connected one.
                self.agent_gone(&agent.host);
                if agent.self_registered {
                    if !self.expected.remove(&agent.host) {
                        self.gone(&agent.host);
                    }
                    self.see(&agent.host, agent.slots);
                } else if (self.sources).found(&agent.host, agent.slots, agent.detected_slots) {
                    self.listed(now);
                }
            }
            _ => {}
        }
    }

    fn see(&mut self, host: &HostId, slots: u32) {
        if self
            .known
            .get(host)
            .is_some_and(|known| known.slots > slots)
        {
            *self.shrinks.entry(host.clone()).or_default() += 1;
        }
        if let Some(known) = self.known.get_mut(host).filter(|known| known.noticed) {
            known.slots = slots;
            return;
        }
        if self.known.get(host).is_none_or(|known| known.draining) {
            self.fresh.push(host.clone());
            self.moved(host);
        }
        let known = Known {
            slots,
            draining: false,
            noticed: false,
            due: None,
        };
        self.known.insert(host.clone(), known);
    }

    /// A connected agent or an operator reports that a host goes away.
    pub(crate) fn noticed(&mut self, now: Time, host: &HostId, notice: Notice) {
        let leaves = self.elastic && !notice.kind.is_risk_only();
        if let Some(known) = self.known.get_mut(host).filter(|_| leaves) {
            known.drains(now, notice.within);
            known.noticed = true;
        }
    }

    /// The connected agent of a host reports that its host goes away.
    pub(crate) fn agent_noticed(&mut self, now: Time, host: &HostId, notice: Notice) {
        if self.elastic && !notice.kind.is_risk_only() {
            let said = (now, notice.within);
            let due = |said: &(Time, Option<Duration>)| said.0 + said.1.unwrap_or_default();
            let before = self.said.entry(host.clone()).or_insert(said);
            if due(&said) < due(before) {
                *before = said;
            }
        }
        self.noticed(now, host, notice);
    }

    /// The agent of a host is gone.
    pub(crate) fn agent_gone(&mut self, host: &HostId) {
        self.away.remove(host);
        self.said.remove(host);
    }

    /// Hosts that are out of reach and may return.
    pub(crate) fn away(&self) -> Vec<HostId> {
        self.away.keys().cloned().collect()
    }

    /// Until when workers of a draining host may train on; none if the host does not drain.
    pub(crate) fn drain_due(&self, host: &HostId) -> Option<Time> {
        let known = self.known.get(host).filter(|known| known.draining)?;
        known.due
    }

    /// Whether a host will go away.
    pub(crate) fn drains(&self, host: &HostId) -> bool {
        self.known.get(host).is_some_and(|known| known.draining)
    }

    /// Number of known hosts.
    pub(crate) fn hosts(&self) -> usize {
        self.known.len()
    }

    fn listed(&mut self, now: Time) {
        if !self.sources.any {
            return;
        }
        self.discovered = true;
        let list = self.sources.verdicts();
        let mut there = BTreeSet::new();
        for (id, verdict) in &list {
            match verdict.state {
                HostState::Ready => self.see(id, verdict.slots),
                HostState::Draining => {
                    if let Some(known) = self.known.get_mut(id) {
                        known.drains(now, verdict.within);
                    }
                }
                HostState::Pending | HostState::Gone => continue,
            }
            there.insert(id.clone());
        }
        self.known.retain(|id, _| there.contains(id));
        // Notices that came while no list had the host.
        for (host, (at, within)) in self.said.clone() {
            if self.known.get(&host).is_some_and(|known| !known.noticed) {
                let kind = NoticeKind::Operator;
                self.noticed(at, &host, Notice { kind, within });
            }
        }
    }

    fn moved(&mut self, host: &HostId) {
        *self.moves.entry(host.clone()).or_default() += 1;
        self.arrives_last(host);
    }

    fn arrives_last(&mut self, host: &HostId) {
        let last = self.arrivals.values().max().copied().unwrap_or(0);
        self.arrivals.insert(host.clone(), last + 1);
    }

    /// Applies a decision of the job.
    pub(crate) fn on_decision(&mut self, decision: &Decision) {
        match decision {
            Decision::Blacklisted { domain, out } => {
                self.out.insert(domain.clone(), *out);
                self.recent.push(domain.clone());
            }
            Decision::CooldownOver {
                domain: Domain::Host(host),
            } if !self.fresh.contains(host) => {
                self.moved(host);
                for fresh in self.fresh.clone() {
                    self.arrives_last(&fresh);
                }
            }
            Decision::RoundStarted { .. } | Decision::GroupStarted { .. } => self.round_began(),
            Decision::HostAway { host, .. } => {
                self.away.insert(host.clone(), false);
            }
            Decision::RoundPlanned { .. } => {
                self.away.values_mut().for_each(|planned| *planned = true);
            }
            Decision::HostReturned { host } if self.away.remove(host) == Some(true) => {
                self.moved(host);
            }
            Decision::Restarting { .. } => {
                for domain in std::mem::take(&mut self.recent) {
                    self.out.remove(&domain);
                }
            }
            _ => {}
        }
    }

    /// A round has begun, or a later driver learns of one.
    pub(crate) fn round_began(&mut self) {
        self.recent.clear();
    }

    /// A step of the job is over.
    pub(crate) fn step_over(&mut self) {
        self.fresh.clear();
    }

    /// The take-over of a later driver has ended.
    pub(crate) fn took_over(&mut self) {
        for host in std::mem::take(&mut self.expected) {
            self.gone(&host);
        }
    }

    /// A self-registered host has gone.
    pub(crate) fn gone(&mut self, host: &HostId) {
        self.known.remove(host);
    }

    /// Whether a slot may be used now, however many others may.
    pub(crate) fn is_usable(&self, now: Time, host: &HostId, slot: LocalRank) -> bool {
        !self.drains(host) && self.is_in(now, host, slot)
    }

    /// Whether the host of a slot drains and has time left: its worker may train on if too few others could.
    pub(crate) fn may_stay(&self, now: Time, host: &HostId, slot: LocalRank) -> bool {
        self.drain_due(host).is_some_and(|due| now < due) && self.is_in(now, host, slot)
    }

    /// Whether a slot is known and not excluded.
    fn is_in(&self, now: Time, host: &HostId, slot: LocalRank) -> bool {
        let there = (self.known.get(host)).is_some_and(|known| slot.0 < known.slots);
        let is_out = |domain: &Domain| match self.out.get(domain) {
            Some(Out::ForGood) => true,
            Some(Out::Until(end)) => *end > now,
            None => false,
        };
        let away = self.itself && self.away.contains_key(host);
        there
            && !away
            && !is_out(&Domain::Host(host.clone()))
            && !is_out(&Domain::Slot(host.clone(), slot))
    }

    /// The slots that may be used now.
    pub(crate) fn usable_slots(&self, now: Time) -> impl Iterator<Item = (HostId, LocalRank)> + '_ {
        let slots = |known: &Known| (0..known.slots).map(LocalRank);
        (self.known.iter())
            .flat_map(move |(host, known)| slots(known).map(move |slot| (host.clone(), slot)))
            .filter(move |(host, slot)| self.is_usable(now, host, *slot))
    }

    /// The place of a host in the order of arrival.
    pub(crate) fn arrival(&self, host: &HostId) -> u64 {
        self.arrivals.get(host).copied().unwrap_or(u64::MAX)
    }

    /// Number of slots that may be used now.
    pub(crate) fn usable(&self, now: Time) -> u32 {
        let mut usable = 0;
        for (host, known) in &self.known {
            let slots = (0..known.slots).map(LocalRank);
            usable += slots
                .filter(|slot| self.is_usable(now, host, *slot))
                .count() as u32;
        }
        usable
    }

    /// Whether every slot of every known host is excluded for good, and there is at least one.
    pub(crate) fn all_out_for_good(&self) -> bool {
        self.all_out_for_good_of(self)
    }

    /// Whether every slot of every host that `hosts` knows is excluded for good, and there is at least one.
    pub(crate) fn all_out_for_good_of(&self, hosts: &Self) -> bool {
        let for_good = |domain: &Domain| self.out.get(domain) == Some(&Out::ForGood);
        let slots = (hosts.known.iter())
            .flat_map(|(host, known)| (0..known.slots).map(move |slot| (host, LocalRank(slot))));
        let mut any = false;
        let all = slots.into_iter().all(|(host, slot)| {
            any = true;
            for_good(&Domain::Host(host.clone())) || for_good(&Domain::Slot(host.clone(), slot))
        });
        any && all
    }

    /// How often slots of a host were away, as far as the events show.
    pub(crate) fn absences(&self, host: &HostId) -> u32 {
        self.moves(host) + self.shrinks.get(host).copied().unwrap_or(0)
    }

    /// How often a host has lost its place in the order.
    pub(crate) fn moves(&self, host: &HostId) -> u32 {
        self.moves.get(host).copied().unwrap_or(0)
    }
}

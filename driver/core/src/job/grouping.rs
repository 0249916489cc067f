//! Groups of workers without the SDK: when one is started, and when one is ended for another.

use std::collections::BTreeSet;

use elasticrun_protocol::{
    AgentCommand, HostId, LocalRank, Process,
    control::{Restarts, Spawn, StopReason},
};

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    fleet::{Host, Life},
    groups::Supply,
    mutant::{Mutant, planted},
    registry::State,
    results::Outcome,
    rounds::Cause,
    time::earliest,
};

/// Counts for groups, valid until hosts or slots go away. So an event of one host among ten thousand looks at that host
/// alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// Slots that could be in a group, without regard to its maximum size.
    there: Option<usize>,
    /// Every member of the running group has a usable slot.
    none_lost: bool,
}

impl Counted {
    /// Invalidates the counts: hosts or slots have gone, or the capacity was counted again.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Job {
    /// Ends the running group if another one should follow, and starts the next one when possible.
    pub(super) fn lead_group(&mut self, now: Time, out: &mut Out) {
        if self.counted.there.is_none() {
            self.counted.there = Some(self.count_there());
        }
        if self.groups.verdict_is_due(now)
            || self.groups.verdict_waits()
                && self.registry.alive() == 0
                && !planted(Mutant::GroupVerdictNever)
        {
            return self.end_for_failure(out);
        }
        if self.groups.is_running()
            && let Some(cause) = self.group_change(now)
        {
            if cause == Cause::Added && planted(Mutant::GroupGrowsAlone) {
                return self.start_beside(now, out);
            }
            self.end_group(now, cause, out);
        }
        if self.results.outcome().is_some() {
            return;
        }
        if self.groups.tell(now, false) {
            out.push(Command::Announce(Decision::ProcessMode));
            self.tell_unused_store(out);
        }
        let census = self.fleet.census();
        let beside = census.staying() == 0 && planted(Mutant::GroupBesideLast);
        if !self.groups.is_running() {
            if census.is_empty() || beside {
                self.start_group_when_possible(now, out);
            } else {
                // A host may have returned with processes of the last group.
                self.groups.postpone();
            }
        }
    }

    /// Slots that could be in a group now, in the order of their ranks.
    fn group_slots(&self) -> Vec<(HostId, LocalRank)> {
        let absent = planted(Mutant::GroupUnconnected);
        let there = |state: &&Host| state.up().is_some() || absent;
        let up = |host: &HostId| self.fleet.host(host).filter(there);
        let hosts = self.capacity.order().iter();
        let slots = hosts.filter_map(|host| Some((host, up(host)?)));
        let slots = slots.flat_map(|(host, state)| {
            let slots = self.capacity.local_ranks(host);
            slots
                .filter(|slot| !state.is_done(*slot))
                .map(move |slot| (host.clone(), slot))
        });
        slots.take(self.largest_group()).collect()
    }

    /// The number of slots that could be in a group now.
    pub(super) fn group_size(&self) -> usize {
        if planted(Mutant::GroupUnconnected) {
            return self.group_slots().len();
        }
        let there = self.counted.there.unwrap_or_else(|| self.count_there());
        let size = there.min(self.largest_group());
        debug_assert_eq!(size, self.group_slots().len());
        size
    }

    fn count_there(&self) -> usize {
        let hosts = self.capacity.order().iter();
        hosts.map(|host| self.group_slots_of(host)).sum()
    }

    /// The number of slots of a host that could be in a group now.
    fn group_slots_of(&self, host: &HostId) -> usize {
        let up = |state: &&Host| state.up().is_some();
        let Some(state) = self.fleet.host(host).filter(up) else {
            return 0;
        };
        let usable = self.capacity.local_ranks(host);
        usable.filter(|slot| !state.is_done(*slot)).count()
    }

    /// Counts a host whose agent has just connected.
    pub(super) fn count_connected(&mut self, host: &HostId) {
        let more = self.group_slots_of(host);
        if let Some(there) = &mut self.counted.there {
            *there += more;
        }
    }

    fn largest_group(&self) -> usize {
        let max = self.settings.max_np;
        let max = max.filter(|_| !planted(Mutant::GroupOverMax));
        max.map_or(usize::MAX, |max| max as usize)
    }

    /// The supply for a first or a next group. A growth is costly, so it waits for hosts that are still unknown. So
    /// does a start where hosts register themselves, unless workers may still attach.
    fn supply(&self, there: usize, needed: u32) -> Supply {
        let come = self.settings.self_registration && !self.groups.is_undecided();
        let known = if come || self.groups.is_running() {
            usize::MAX
        } else {
            self.capacity.total() as usize
        };
        let expected = known.min(self.largest_group());
        Supply {
            there: there as u32,
            needed,
            expected: expected.try_into().unwrap_or(u32::MAX),
        }
    }

    /// The cause for ending the running group, if there is one.
    fn group_change(&mut self, now: Time) -> Option<Cause> {
        let there = self.group_size();
        let lost = if self.counted.none_lost {
            BTreeSet::new()
        } else {
            self.lost_slots()
        };
        self.counted.none_lost = lost.is_empty();
        let removed = if self.may_wait(now, &lost) {
            // Workers of draining hosts train on until other workers can continue. Here a group of the needed size
            // suffices.
            there >= self.needed() as usize
        } else {
            !lost.is_empty()
        };
        let supply = self.supply(there, self.groups.size() + 1);
        let added = self.groups.is_ripe(now, supply) && !planted(Mutant::GroupNeverGrows);
        let removed = removed && !planted(Mutant::GroupKeepsRemoved);
        (removed || added).then(|| Self::change(added, removed))
    }

    /// Hosts with a member whose slot is no longer usable.
    fn lost_slots(&self) -> BTreeSet<HostId> {
        let hosts = self.fleet.hosts().filter(|(host, state)| {
            let mut live = state.live();
            live.any(|live| {
                self.registry.state(host, live.process) == Some(State::Ready)
                    && !self.capacity.is_usable(host, live.process.local_rank)
            })
        });
        hosts.map(|(host, _)| host.clone()).collect()
    }

    /// Whether `hosts` is not empty, all of them are draining, and all have time left.
    fn may_wait(&self, now: Time, hosts: &BTreeSet<HostId>) -> bool {
        let never_due = planted(Mutant::GroupDrainNeverDue);
        let due = |due: Time| now < due || never_due;
        let patient = |host: &HostId| self.hosts.drain_due(host).is_some_and(due);
        !planted(Mutant::GroupDrainImpatient) && !hosts.is_empty() && hosts.iter().all(patient)
    }

    /// Ends all processes of the group. The next group waits until they are reaped (R4).
    pub(super) fn end_group(&mut self, now: Time, cause: Cause, out: &mut Out) {
        if self.groups.tell(now, true) {
            out.push(Command::Announce(Decision::ProcessMode));
            self.tell_unused_store(out);
        }
        if self.groups.verdict_waits() {
            return self.end_for_failure(out);
        }
        let there = self.group_size() as u32;
        let Some(round) = self.groups.end(now, cause.clone(), there) else {
            return;
        };
        out.push(Command::Announce(Decision::GroupEnded { round, cause }));
        let mut stop: Vec<(HostId, Process)> = Vec::new();
        for (host, state) in self.fleet.hosts() {
            let live = state.live().filter(|live| live.life != Life::Stopping);
            stop.extend(live.map(|live| (host.clone(), live.process)));
        }
        for (host, process) in stop {
            self.fleet.set_life(&host, process, Life::Stopping);
            self.blacklist.went(now, &host, process.local_rank);
            self.registry.record(&host, process, State::Stopped);
            if planted(Mutant::GroupToldIsGone) {
                self.groups.member_reaped();
            }
            let why = StopReason::Removed;
            self.send(&host, AgentCommand::Stop { process, why }, out);
        }
        for (host, process) in self.stop_away() {
            self.registry.record(&host, process, State::Stopped);
        }
    }

    /// Members on hosts that are away are stopped when their host returns: they must not run beside the next group (R11).
    pub(super) fn stop_away(&mut self) -> Vec<(HostId, Process)> {
        let mut stopped = Vec::new();
        if planted(Mutant::OldGroupStays) {
            return stopped;
        }
        for host in &self.away {
            let processes = self.fleet.set_lives_away(host, |_| Life::Stopping);
            stopped.extend(processes.into_iter().map(|process| (host.clone(), process)));
        }
        stopped
    }

    /// A planted mistake: processes are started on the free slots, with places that are unknown to the others.
    fn start_beside(&mut self, now: Time, out: &mut Out) {
        let slots = self.group_slots();
        let free = |(host, slot): &&(HostId, LocalRank)| {
            (self.fleet.host(host)).is_some_and(|state| state.is_free(*slot))
        };
        let free: Vec<_> = slots.iter().filter(free).cloned().collect();
        self.start_group(now, &free, out);
    }

    fn start_group_when_possible(&mut self, now: Time, out: &mut Out) {
        let there = self.group_size();
        let supply = self.supply(there, self.needed());
        let ripe = self.groups.is_ripe(now, supply);
        let fenced = self.fenced_until.is_some_and(|until| now < until);
        if fenced && !self.groups.is_reaped() && !planted(Mutant::GroupNoFence) {
            // Members that are only cut off may run until then (R11). If a member is known to have ended, the others
            // cannot continue.
            return;
        }
        self.fenced_until = None;
        if !ripe {
            return;
        }
        if !self.budgets.allows_round() {
            let limit = self.settings.reset_limit.unwrap_or(0);
            return self.end(Outcome::ResetLimit { limit }, out);
        }
        let slots = self.group_slots();
        self.start_group(now, &slots, out);
    }

    fn start_group(&mut self, now: Time, slots: &[(HostId, LocalRank)], out: &mut Out) {
        let first = slots.first().and_then(|(host, _)| self.fleet.host(host));
        let Some(up) = first.and_then(|state| state.up()) else {
            return;
        };
        let coordinator = (up.address, up.free_port).into();
        let (round, cause, since) = self.groups.start(now, slots.len() as u32);
        self.counted.none_lost = true;
        let named: Vec<_> = slots.iter().map(|(host, slot)| (host, *slot)).collect();
        let places = self.placement.places(&named);
        let mut started = Vec::with_capacity(slots.len());
        for of_host in slots.chunk_by(|a, b| a.0 == b.0) {
            let (host, slots) = (&of_host[0].0, of_host.iter().map(|(_, slot)| *slot));
            let processes = self.fleet.start_all(now, host, slots);
            (self.fleet).set_lives(host, processes.iter().copied(), Life::Training { round });
            started.extend(processes);
        }
        let mut members = Vec::with_capacity(slots.len());
        for (((host, slot), place), process) in slots.iter().zip(places).zip(started) {
            // The start of a script's training is not observable, so its start counts.
            self.blacklist.came(now, host, *slot);
            if planted(Mutant::GroupStartTimeout) {
                self.starts.push_back((now, host.clone(), Some(process)));
            }
            members.push((host.clone(), process, place.rank));
            let restarts = Some(Restarts {
                used: self.budgets.restarts(),
                allowed: self.budgets.max_restarts(),
            });
            let spawn = Spawn {
                process,
                place,
                coordinator,
                restarts,
            };
            self.send(host, AgentCommand::Spawn(spawn), out);
        }
        self.startup = super::ending::Startup::of_group(members.len() as u32);
        self.registry.round_started(round, members);
        self.blacklist.round_started();
        if !planted(Mutant::GroupResetForgotten) {
            self.budgets.round_started();
        }
        self.shortage = Default::default();
        out.push(Command::Announce(Decision::GroupStarted {
            round,
            size: slots.len() as u32,
            cause,
            took: now.since(since),
        }));
        if self.groups.tell(now, false) {
            out.push(Command::Announce(Decision::ProcessMode));
            self.tell_unused_store(out);
        }
    }

    /// When a drain, a fence or a last call ends.
    pub(super) fn next_group_deadline(&self) -> Option<Time> {
        if !self.groups.leads() || self.is_ending() {
            return None;
        }
        let drains = || {
            self.lost_slots()
                .into_iter()
                .filter_map(|host| self.hosts.drain_due(&host))
        };
        let later = |due: &Time| *due > self.settled;
        let phase = if self.groups.is_running() {
            let lost = (!self.counted.none_lost).then(drains);
            lost.into_iter().flatten().filter(later).min()
        } else {
            self.fenced_until.filter(later)
        };
        earliest([phase, self.groups.next_deadline()])
    }
}

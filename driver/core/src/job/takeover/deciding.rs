//! The decision of a take-over: whether the round or group of the former driver goes on, and what becomes of its members if
//! not.
//!
//! - T1 The round goes on only if the agents of all its members report it as started, and each member as training or
//!   finished. If a later one was planned, agents that are not back may be in that one, and a new agent cannot say what the former one
//!   of its host did. So all agents must be back. If the driver of the records did not know the round and has planned a later
//!   one, the round is over in any case.
//!   Otherwise the round is aborted, and the next one forms with those that are back (R12).
//! - T3 A round that is aborted, or whose start was not recorded, may train unseen on hosts that are not back. The fence counts
//!   from the start of this driver, which is after the last heartbeat that the former driver has answered (R11).

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{AgentCommand, AgentReport, HostId, Process, Round, control::StopReason};

use super::{
    super::{Job, Out, adopting::process_of},
    Reported, TakeOver,
};
use crate::{
    Command, Decision, Time,
    fleet::Life,
    mutant::{Mutant, planted},
    registry::State,
    rounds::{Cause, Training},
};

impl Job {
    /// Decides whether the round of the former driver goes on, and gives up agents that are not back in time. Returns whether
    /// that is undecided.
    pub(in super::super) fn follow_takeover(&mut self, now: Time, out: &mut Out) -> bool {
        let Some(takeover) = &self.takeover else {
            return false;
        };
        let over = takeover.until <= now;
        if !takeover.decided {
            let away = takeover.is_blind || !takeover.absent.is_empty() || !self.away.is_empty();
            let waits = !over && (away || self.lacks_members());
            if self.groups.leads() {
                if waits {
                    return true;
                }
                self.run_former_group(now);
                if self.apply_failures(now, out) {
                    self.decide_group(now, out);
                }
            } else if let Some(round) = self.adoptable_round() {
                self.adopt_round(now, round, out);
                self.apply_failures(now, out);
            } else if waits {
                // Members that are back leave a broken round, and each older one, while the others are on their way.
                let may_go_on = self.registry.round();
                let is_over = self.is_round_broken() || self.is_left_behind();
                let may_go_on = may_go_on.filter(|_| !is_over);
                self.abort_former(None, may_go_on, out);
                return true;
            } else {
                if self.apply_failures(now, out) {
                    self.abandon_round(now, out);
                }
            }
        }
        if self.results.outcome().is_some() {
            return true;
        }
        if over && let Some(takeover) = self.takeover.take() {
            for host in takeover.absent {
                self.give_up_absent(host);
            }
        }
        false
    }

    /// The started round, if each of its members is known to train or to have finished (T1).
    fn adoptable_round(&self) -> Option<Reported> {
        let reported = self.takeover.as_ref()?.round?;
        let another = self.may_be_in_another() || self.registry.suspects_another();
        if self.registry.round() != Some(reported.round) || another || self.is_left_behind() {
            return None;
        }
        let members = self.registry.processes();
        let count: usize = members.values().map(Vec::len).sum();
        let complete = count == reported.size as usize || planted(Mutant::PartialRoundAdopted);
        let goes_on = |(host, members): (&HostId, &Vec<Process>)| {
            let goes_on = |process: &Process| self.is_in_round(host, *process, reported.round);
            members.iter().all(goes_on) || planted(Mutant::PartialRoundAdopted)
        };
        (complete && members.iter().all(goes_on)).then_some(reported)
    }

    /// Whether agents that are not back, or never come back, may have been in a later round than the newest one that records
    /// or agents name.
    fn may_be_in_another(&self) -> bool {
        let known = self.registry.round();
        self.takeover.as_ref().is_some_and(|takeover| {
            let newer = known.is_none_or(|known| known < takeover.possible);
            newer && (takeover.is_blind || self.lacks_agents())
        })
    }

    /// Whether agents of the former driver are not back, or never come back.
    fn lacks_agents(&self) -> bool {
        let lacks = |takeover: &TakeOver| takeover.is_replaced || !takeover.absent.is_empty();
        self.takeover.as_ref().is_some_and(lacks)
    }

    /// Whether the driver of the records did not know the newest round that agents report, and has gone on without it: the
    /// records lack its start, and have a later plan. So a later round may have started.
    fn is_left_behind(&self) -> bool {
        let Some(takeover) = self.takeover.as_ref().filter(|takeover| takeover.led) else {
            return false;
        };
        let is_past = |round| takeover.recorded < Some(round) && round < takeover.planned;
        (takeover.round).is_some_and(|reported| is_past(reported.round))
    }

    /// Whether hosts that the records do not know have members of the started round.
    fn lacks_members(&self) -> bool {
        let reported = self.takeover.as_ref().and_then(|takeover| takeover.round);
        reported.is_some_and(|reported| {
            let known: usize = self.registry.processes().values().map(Vec::len).sum();
            self.registry.round() == Some(reported.round) && known < reported.size as usize
        })
    }

    /// Whether a member trains or has ended well.
    fn is_in_round(&self, host: &HostId, process: Process, round: Round) -> bool {
        let live = self.fleet.current(host, process);
        let trains = live.is_some_and(|live| live.life == Life::Training { round });
        self.registry.state(host, process) == Some(State::Successful)
            || trains && !self.failure_waits(host, process)
    }

    /// Whether an agent has reported the failure of a process, which is not applied yet.
    pub(in super::super) fn failure_waits(&self, host: &HostId, process: Process) -> bool {
        let failures = self.takeover.iter().flat_map(|takeover| &takeover.failures);
        let failed = |(of, report): &(HostId, AgentReport)| {
            of == host && process_of(report) == Some(process)
        };
        failures.into_iter().any(failed)
    }

    /// Whether a member whose agent is back has left the round.
    fn is_round_broken(&self) -> bool {
        let Some(round) = self.registry.round() else {
            return false;
        };
        (self.registry.processes().iter())
            .filter(|(host, _)| self.is_up(host))
            .any(|(host, members)| {
                let left = |process: &Process| !self.is_in_round(host, *process, round);
                members.iter().any(left)
            })
    }

    fn adopt_round(&mut self, now: Time, reported: Reported, out: &mut Out) {
        let (round, size) = (
            reported.round,
            self.registry.alive() + self.registry.successes(),
        );
        let members = self.registry.living();
        let order: Vec<_> = (self.hosts.in_order().into_iter())
            .filter(|host| members.contains_key(*host))
            .cloned()
            .collect();
        self.suspicion
            .started(now, round, self.lineage.newest(), order);
        self.rounds.adopt(Training {
            round,
            unsealed: members.keys().cloned().collect(),
            members,
            size,
            holders: self
                .takeover
                .as_ref()
                .map_or(0, |takeover| takeover.holders),
            hold: None,
        });
        out.push(Command::OpenRound { round });
        self.decided(now, Some(round), out);
        let waiting = self.waitlist.iter().map(|(host, _)| host);
        self.probing.round_started(waiting);
        // Workers that left an older round, and those that trained in another one.
        self.abort_former(None, Some(round), out);
        self.stop_late_outsiders(out);
    }

    /// Stops processes in no round that came back once a member had finished: no further round is formed.
    pub(super) fn stop_late_outsiders(&mut self, out: &mut Out) {
        if self.is_ending() {
            self.stop_all_outsiders(out);
        }
    }

    /// Records the ends of members that no agent has brought back. Returns whether some of them may train unseen.
    fn lose_absent_members(&mut self) -> bool {
        if self.may_be_in_another() {
            self.registry.suspect_another();
        }
        // Members that neither records nor agents name are out of reach as well.
        let mut lost = self.registry.unknown() > 0 || self.registry.suspects_another();
        for (host, members) in self.registry.processes() {
            let up = self.is_up(&host);
            for process in members {
                if self.fleet.current(&host, process).is_some() {
                    continue;
                }
                // A member that its agent does not name has ended, and the record of its end is lost.
                let state = if up {
                    State::Stopped
                } else {
                    State::LostWithHost
                };
                lost |= self.registry.record(&host, process, state) && !up;
            }
        }
        lost
    }

    /// Members that are out of reach may train until the end of their lease. The time of this driver begins after the last
    /// heartbeat that the former one has answered (T3). Agents that were back and are away again had answers of this driver.
    fn fence_former(&mut self) {
        let former = Time::ZERO + self.settings.fence;
        self.fenced_until = self.fenced_until.max(Some(former));
    }

    /// The round does not go on: its members that are back leave it, and the next round forms.
    fn abandon_round(&mut self, now: Time, out: &mut Out) {
        let lost = self.lose_absent_members();
        if lost {
            self.fence_former();
        }
        for host in self.registry.processes().into_keys() {
            if !self.is_up(&host) {
                let goes = self.hosts.is_draining(&host);
                self.going_back.lost(&host, goes, false);
            }
        }
        // Nobody may have named the members there, and each has a shard of a divided state.
        let absent = self.takeover.iter().flat_map(TakeOver::absent);
        let absent: Vec<_> = absent.filter(|_| self.is_divided()).cloned().collect();
        for host in absent {
            let goes = self.hosts.is_draining(&host);
            self.going_back.lost(&host, goes, true);
        }
        if self.registry.round().is_some() {
            self.rounds.disturb(now, Cause::DriverReplaced);
        }
        self.decided(now, None, out);
        self.abort_former(None, None, out);
        self.stop_late_outsiders(out);
    }

    /// It is decided whether the round or group of the former driver goes on. The exit timeout begins anew, with the time of
    /// this driver.
    fn decided(&mut self, now: Time, round: Option<Round>, out: &mut Out) {
        if let Some(takeover) = &mut self.takeover {
            takeover.decided = true;
        }
        // Of a round that does not go on, success of all is no longer possible.
        if self.registry.successes() > 0 || round.is_none() && self.is_ending() {
            self.exits_since = Some(now);
        }
        self.shortage = Default::default();
        self.capacity_dirty = true;
        self.recheck_members = true;
        let workers = self.fleet.census().staying();
        out.push(Command::Announce(Decision::TookOver { round, workers }));
    }

    /// Ends the rounds of the former driver, except for the one that goes on, for their members on this host or on all hosts.
    fn abort_former(&mut self, only: Option<&HostId>, goes_on: Option<Round>, out: &mut Out) {
        let mut left = Vec::new();
        for (host, state) in self.fleet.hosts() {
            if only.is_some_and(|only| only != host) {
                continue;
            }
            for live in state.live() {
                if let Life::Training { round } = live.life
                    && Some(round) != goes_on
                    && self.registry.state(host, live.process) != Some(State::Finished)
                {
                    left.push((host.clone(), live.process, round));
                }
            }
        }
        let mut told = BTreeSet::new();
        for (host, process, round) in left {
            self.fleet
                .set_life(&host, process, Life::Returning { round });
            if told.insert((host.clone(), round)) {
                self.send(&host, AgentCommand::Abort { round }, out);
            }
        }
    }

    /// Ends what a host does for a round or group of the former driver that does not go on, since its agent came late.
    pub(super) fn end_former(&mut self, host: &HostId, out: &mut Out) {
        if !self.groups.leads() {
            return self.abort_former(Some(host), self.rounds.training(), out);
        }
        let live = self
            .fleet
            .host(host)
            .into_iter()
            .flat_map(|state| state.live());
        let processes: Vec<_> = live.map(|live| live.process).collect();
        for process in processes {
            self.stop(host, process, StopReason::Removed, out);
        }
    }

    /// The group of the records runs until it is decided whether it goes on. So the first failure of a member ends it, and
    /// the others use no restart.
    fn run_former_group(&mut self, now: Time) {
        let alive = self.registry.alive();
        if let Some(round) = self.registry.round().filter(|_| alive > 0) {
            self.groups.adopt(now, round, alive);
        }
    }

    /// A group goes on if exactly its members are there, or, once a member has succeeded, may come back. Otherwise all processes end, and the next group starts.
    fn decide_group(&mut self, now: Time, out: &mut Out) {
        let mut living: BTreeMap<HostId, Vec<Process>> = BTreeMap::new();
        for (host, state) in self.fleet.hosts() {
            for live in state.live() {
                living.entry(host.clone()).or_default().push(live.process);
            }
        }
        let mut expected = living.clone();
        if self.is_ending() {
            // Their ends are all that the job waits for.
            for (host, away) in self
                .fleet
                .hosts()
                .filter_map(|(host, state)| Some((host, state.away()?)))
            {
                let processes = away.live.iter().map(|live| live.process);
                expected.entry(host.clone()).or_default().extend(processes);
            }
        }
        let same = self.registry.living() == expected;
        let whole = same && self.registry.is_whole() && !expected.is_empty();
        let round = self.registry.round().filter(|_| whole);
        match round {
            Some(round) => {
                for (host, processes) in living {
                    for process in processes {
                        self.fleet
                            .set_life(&host, process, Life::Training { round });
                    }
                }
                self.groups.adopt(now, round, self.registry.alive());
            }
            None => {
                self.groups.end(now, Cause::DriverReplaced, u32::MAX);
                if self.lose_absent_members() {
                    self.fence_former();
                }
                if self.registry.round().is_none() && (!living.is_empty() || self.lacks_agents()) {
                    // Scripts that have ended well were in one group with those that are stopped, or whose end is not known. It
                    // begins anew as a whole.
                    self.fleet.forget_done();
                    self.counted.forget();
                }
                for (host, processes) in living {
                    for process in processes {
                        self.stop(&host, process, StopReason::Removed, out);
                    }
                }
                self.stop_away();
            }
        }
        self.decided(now, round, out);
    }

    /// The agent of a host is not back in time. Another one may be launched there.
    fn give_up_absent(&mut self, host: HostId) {
        if self.settings.self_registration {
            self.hosts.forget(&host);
        }
        self.capacity_dirty = true;
        self.dirty_hosts.insert(host);
    }
}

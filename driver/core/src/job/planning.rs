//! Planning: when a round is planned, and when one is interrupted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::{AgentCommand, Boundary, HostId, Process, Round};

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    assignment::{self, Candidate},
    fleet::Life,
    mutant::{Mutant, planted},
    results::Outcome,
    rounds::{Cause, Phase},
    time::earliest,
};

/// What the hosts of a round have completed with their last message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Completed {
    /// All have answered the plan of this round.
    Answers(Round),
    /// All have counted. The members of this round leave it at this boundary.
    Counts(Round, Boundary),
}

impl Job {
    /// Plans a round if none is planned or trains and one is possible. Interrupts the round that trains if another
    /// would be better.
    pub(super) fn plan_or_hold(&mut self, now: Time, out: &mut Out) {
        match &self.rounds.phase {
            Phase::Idle => self.plan_when_possible(now, out),
            // No change is worth the round while it waits for hosts that are away.
            Phase::Training(_) if self.waits_for_away() => {}
            Phase::Training(training) => {
                let is_held = training.hold.is_some();
                self.ask_newcomers(now, out);
                if !is_held {
                    self.hold_when_useful(now, out);
                }
            }
            Phase::Forming(forming) => {
                // A member whose slot went away while the round was formed must not start in it (R5).
                let broken = self.has_lost_slots(&forming.members);
                self.recheck_members = false;
                if broken && !planted(Mutant::LateRemoval) {
                    self.plan_without_unusable(now, out);
                }
            }
        }
    }

    /// Replaces a planned round of which a member is no longer usable. Members on the way to a common boundary continue
    /// to it and are planned anew, so a second draining host costs no more than the first.
    fn plan_without_unusable(&mut self, now: Time, out: &mut Out) {
        self.rounds.disturb(now, Cause::Removed);
        let chosen = self.choose();
        if chosen.len() >= self.needed() as usize
            && let Some(planned) = self.rounds.unplan_left()
        {
            let (round, started) = (planned.round, false);
            out.push(Command::Announce(Decision::RoundAborted { round, started }));
            for host in planned.hosts {
                self.send(&host, AgentCommand::Abort { round }, out);
            }
            return self.plan(now, chosen, Cause::Removed, out);
        }
        self.abort_rounds(out);
        self.stop_unusable(out);
        // The capacity was just counted, and processes without a usable slot were just stopped.
        self.capacity_dirty = false;
        self.plan_when_possible(now, out);
    }

    fn plan_when_possible(&mut self, now: Time, out: &mut Out) {
        if self.loss_grace_until.is_some_and(|until| now < until) {
            return;
        }
        self.loss_grace_until = None;
        if planted(Mutant::ResetForShortage) && !self.budgets.allows_round() {
            let limit = self.settings.reset_limit.unwrap_or(0);
            return self.end(Outcome::ResetLimit { limit }, out);
        }
        let census = self.fleet.census();
        if census.waiting + census.returning < self.needed() as usize {
            return;
        }
        // Without survivors no worker trains meanwhile, so the job waits for a last call.
        let survivors_wait = census.returning > 0;
        if !survivors_wait && self.ripe_at().is_some_and(|ripe| now < ripe) {
            return;
        }
        let chosen = self.choose();
        if chosen.len() < self.needed() as usize {
            return;
        }
        let cause = match self.rounds.disturbance() {
            Some((_, cause)) => cause.clone(),
            None if self.budgets.started() == 0 => Cause::First,
            None => Cause::Added,
        };
        self.plan(now, chosen, cause, out);
    }

    /// When the waiting workers may be planned: at once if no other worker can join the plan, else after the last call.
    /// A usable slot that is not filled yet counts as a worker that can join.
    fn ripe_at(&self) -> Option<Time> {
        let census = self.fleet.census();
        // A newcomer with a pending probe counts as one that can still join.
        let asked = usize::from(self.is_asking());
        let there = (census.waiting + census.returning + census.training).saturating_sub(asked);
        let max = self.settings.max_np.map_or(usize::MAX, |max| max as usize);
        let free = self.capacity.total().saturating_sub(self.done_slots());
        let most = max.min(free as usize);
        self.waitlist
            .ripe_at(most.saturating_sub(there), self.settings.last_call)
    }

    /// The candidates for a round in rank order, cut at `max_np` and at a multiple of [`crate::Settings::unit`].
    pub(super) fn choose(&self) -> Vec<Candidate> {
        let chosen = self.choose_of(|host| self.may_join(host));
        if chosen.len() < self.needed() as usize && self.trains_on().is_none() {
            // No worker trains meanwhile, so hosts with a pending probe are better than none.
            return self.choose_of(|_| true);
        }
        chosen
    }

    pub(super) fn choose_of(&self, may_join: impl Fn(&HostId) -> bool) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for host in self.capacity.order() {
            if !may_join(host) {
                continue;
            }
            let absent = planted(Mutant::AwayIsUsable);
            let state = (self.fleet.host(host))
                .filter(|state| state.up().is_some() || absent && state.away().is_some());
            let Some(state) = state else {
                continue;
            };
            let arrival = self.hosts.arrival(host);
            let (usable, members) = (self.capacity.of_host(host), self.registry.of_host(host));
            let out_of_reach = state.away().into_iter().flat_map(|away| &away.live);
            for live in state.live().chain(out_of_reach.copied()) {
                let there = matches!(
                    live.life,
                    Life::Waiting | Life::Returning { .. } | Life::Training { .. }
                );
                if there && usable.has(live.process.local_rank) {
                    let former = members.rank(live.process);
                    candidates.push(Candidate {
                        arrival,
                        host: host.clone(),
                        process: live.process,
                        former,
                    });
                }
            }
        }
        let max_np = (self.settings.max_np).filter(|_| !planted(Mutant::MaxPassed));
        let count = candidates.len() as u32;
        let most = max_np.map_or(count, |max| max.min(count));
        let unit = match planted(Mutant::HalfGroup) {
            true => self.settings.size_multiple.max(1),
            false => self.settings.unit(),
        };
        let whole = most - most % unit;
        match self.replica_group_size() {
            Some(size) => self.choose_groups(assignment::choose(candidates, None), whole, size),
            None => assignment::choose(candidates, Some(whole)),
        }
    }

    fn plan(&mut self, now: Time, chosen: Vec<Candidate>, cause: Cause, out: &mut Out) {
        if !self.budgets.allows_round() {
            let limit = self.settings.reset_limit.unwrap_or(0);
            return self.end(Outcome::ResetLimit { limit }, out);
        }
        self.rounds.disturb(now, cause.clone());
        let mut members: BTreeMap<HostId, Vec<Process>> = BTreeMap::new();
        for of_host in chosen.chunk_by(|a, b| a.host == b.host) {
            let host = &of_host[0].host;
            self.probing.planned(host);
            let processes = of_host.iter().map(|candidate| candidate.process);
            members.insert(host.clone(), processes.collect());
        }
        // Hosts with memory answer as well: they may hold the newest commit (R12).
        let mut ask: BTreeSet<_> = members.keys().cloned().collect();
        let has_memory =
            |(_, state): &(&HostId, &crate::fleet::Host)| state.has_memory && state.up().is_some();
        ask.extend(
            self.fleet
                .hosts()
                .filter(has_memory)
                .map(|(host, _)| host.clone()),
        );
        ask.extend(self.replica_hosts().cloned());
        let patience = match &self.rounds.phase {
            Phase::Training(_) => self.interrupt_timeout(),
            _ => self.answer_timeout(),
        };
        let forming = self
            .rounds
            .plan(members, ask, now + patience, cause.clone());
        let (round, size) = (forming.round, forming.size);
        for host in &forming.missing {
            let members = forming.members.get(host).cloned().unwrap_or_default();
            out.push(Command::Send {
                host: host.clone(),
                command: AgentCommand::Plan { round, members },
            });
        }
        out.push(Command::Announce(Decision::RoundPlanned {
            round,
            size,
            cause,
        }));
        self.recheck_members = false;
    }

    fn interrupt_timeout(&self) -> Duration {
        match self.settings.interrupt_timeout {
            timeout if planted(Mutant::InterruptWithoutEnd) => timeout * 1000,
            timeout => timeout,
        }
    }

    /// The time limit for an answer. An agent kills a member that is not back after the abort timeout, so its answer
    /// follows soon after.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.settings.abort_timeout + Duration::from_secs(10)
    }

    /// Whether a round of this size can grow by whole groups. A growth that completes none changes nothing. Workers that wait on a
    /// draining host complete none, since they would leave soon.
    fn completes_unit(&self, size: usize) -> bool {
        let chosen = self.choose();
        let is_new = |candidate: &&Candidate| {
            let rank = self.registry.rank(&candidate.host, candidate.process);
            rank.is_none() && !self.hosts.is_draining(&candidate.host)
        };
        let new = chosen.iter().filter(is_new).count();
        chosen.len() > size && new >= self.settings.unit() as usize
    }

    fn hold_when_useful(&mut self, now: Time, out: &mut Out) {
        let Phase::Training(training) = &self.rounds.phase else {
            return;
        };
        let size = training.size as usize;
        let room = self
            .settings
            .max_np
            .map_or(usize::MAX, |max| (max as usize).saturating_sub(size));
        // Workers of draining hosts may train until others are available, so this is checked at every event.
        let removed = (self.recheck_members || self.hosts.draining().next().is_some())
            && self.must_leave(now);
        let removed = removed && !planted(Mutant::RemovalUnnoticed);
        self.recheck_members = false;
        let room = room + usize::from(planted(Mutant::SpareInterrupts));
        let added =
            room > 0 && self.ripe_at().is_some_and(|ripe| ripe <= now) && self.has_admitted();
        let added = added && (self.settings.unit() <= 1 || self.completes_unit(size));
        if !added && !removed {
            return;
        }
        let cause = Self::change(added, removed);
        self.rounds.disturb(now, cause.clone());
        if planted(Mutant::ChangeAborts) {
            return self.abort_rounds(out);
        }
        let deadline = now + self.interrupt_timeout();
        if let Some((round, hosts)) = self.rounds.hold(deadline, cause.clone()) {
            out.push(Command::Announce(Decision::Interrupting { round, cause }));
            for host in hosts {
                self.send(&host, AgentCommand::Hold { round }, out);
            }
        }
    }

    /// Starts the round that all hosts have answered, or sends all to the counted boundary, unless that round is over.
    pub(super) fn follow_completed(&mut self, now: Time, out: &mut Out) {
        let Some(completed) = self.completed.take() else {
            return;
        };
        self.count_anew(out);
        match (completed, &self.rounds.phase) {
            (Completed::Answers(round), Phase::Forming(forming))
                if forming.round == round
                    && forming.missing.is_empty()
                    && (!self.has_lost_slots(&forming.members)
                        || planted(Mutant::StartsUnchecked)) =>
            {
                self.start_round(now, out);
            }
            (Completed::Counts(round, at), Phase::Training(training))
                if training.round == round && training.hold.is_some() =>
            {
                let hosts: Vec<_> = training.members.keys().cloned().collect();
                for host in hosts {
                    self.send(&host, AgentCommand::Leave { round, at }, out);
                }
                self.plan_after_leave(now, out);
            }
            _ => {}
        }
    }

    /// Starts the planned round, which all hosts have answered, unless a member has lost its slot since (R5).
    fn start_if_usable(&mut self, now: Time, out: &mut Out) {
        self.count_anew(out);
        if let Phase::Forming(forming) = &self.rounds.phase
            && !self.has_lost_slots(&forming.members)
        {
            self.start_round(now, out);
        }
    }

    /// Whether a member has lost its slot; only checked if slots may have gone.
    fn has_lost_slots(&self, members: &BTreeMap<HostId, Vec<Process>>) -> bool {
        self.recheck_members
            && members.iter().any(|(host, members)| {
                let usable = self.capacity.of_host(host);
                members.iter().any(|p| !usable.has(p.local_rank))
            })
    }

    /// All members are on their way to the common boundary: plans the next round.
    fn plan_after_leave(&mut self, now: Time, out: &mut Out) {
        let cause = match &self.rounds.phase {
            Phase::Training(training) => training.hold.as_ref().map(|hold| hold.cause.clone()),
            _ => None,
        };
        let chosen = self.choose();
        if chosen.len() >= self.needed() as usize {
            self.plan(now, chosen, cause.unwrap_or(Cause::Added), out);
        }
        // Otherwise the hold stays until all have left or its deadline comes; then the job waits for slots.
    }

    /// Handles hosts that take too long to leave, to answer, or to count.
    pub(super) fn end_slow_rounds(&mut self, now: Time, out: &mut Out) {
        if self.loss_grace_until.is_some_and(|until| until <= now) {
            self.loss_grace_until = None;
        }
        let patience = self.answer_timeout();
        match &mut self.rounds.phase {
            Phase::Idle => {}
            Phase::Training(training) => {
                if training
                    .hold
                    .as_ref()
                    .is_some_and(|hold| hold.deadline <= now)
                {
                    // The interrupt saves work; safety never depends on it.
                    self.abort_rounds(out);
                }
            }
            Phase::Forming(forming) if forming.missing.is_empty() => self.start_if_usable(now, out),
            Phase::Forming(forming) if forming.deadline > now => {}
            Phase::Forming(forming) => match forming.leaving.take() {
                Some(left) => {
                    forming.deadline = now + patience;
                    self.abort_left(left.round, out);
                }
                None => {
                    let slow: Vec<_> = forming.missing.iter().cloned().collect();
                    for host in slow {
                        self.agent_lost(
                            now,
                            &host,
                            "its agent did not answer a plan in time".into(),
                            out,
                        );
                    }
                }
            },
        }
    }

    /// Aborts the round that its members were to leave at a common boundary.
    pub(super) fn abort_left(&mut self, round: Round, out: &mut Out) {
        let mut training = Vec::new();
        for (host, state) in self.fleet.hosts() {
            let members = state
                .live()
                .filter(|live| live.life == Life::Training { round });
            training.extend(members.map(|live| (host.clone(), live.process)));
        }
        out.push(Command::Announce(Decision::RoundAborted {
            round,
            started: true,
        }));
        for (host, process) in &training {
            self.fleet
                .set_life(host, *process, Life::Returning { round });
        }
        self.suspicion.ended(self.now);
        training.dedup_by(|a, b| a.0 == b.0);
        for (host, _) in training {
            self.send(&host, AgentCommand::Abort { round }, out);
        }
    }

    pub(super) fn next_round_deadline(&self) -> Option<Time> {
        // A deadline that was due at the last event was handled then. Only another event can change the decision.
        let ripe = self.ripe_at().filter(|ripe| *ripe > self.settled);
        let phase = match &self.rounds.phase {
            Phase::Idle => ripe,
            // All have answered: the start waits only for the fence, and for newer commits of lost hosts or the store.
            Phase::Forming(forming) if forming.missing.is_empty() => {
                let ahead = |due: Option<Time>| due.filter(|due| *due > self.settled);
                let waits = [
                    self.fenced_until,
                    self.going_back.deadline(),
                    self.stored.deadline(),
                ];
                earliest(waits.map(ahead))
            }
            Phase::Forming(forming) => Some(forming.deadline),
            Phase::Training(training) => match &training.hold {
                Some(hold) => Some(hold.deadline),
                None => ripe.filter(|_| {
                    !planted(Mutant::GrowthUnscheduled)
                        && self.settings.max_np.is_none_or(|max| training.size < max)
                        && !self.is_ending()
                }),
            },
        };
        earliest([phase, self.loss_grace_until, self.next_drain_due()])
    }
}

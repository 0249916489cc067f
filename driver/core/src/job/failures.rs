//! Failures of workers, slots and hosts: what they take out and what they end.

use elasticrun_protocol::{
    AgentCommand, HostId, Process, Round,
    control::{Exit, StopReason},
};

use super::{Job, Out};
use crate::{
    Command, Decision, Rejected, Time,
    blacklist::Domain,
    fleet::{Life, Live},
    job::reject,
    mutant::{Mutant, planted},
    registry::State,
    results::{Failure, Outcome, Reason},
    rounds::{Cause, Phase},
};

impl Job {
    /// Handles the loss of a process: it died or fell silent. Its exit status is not known yet, and it may not be
    /// reaped yet.
    pub(super) fn worker_lost(
        &mut self,
        now: Time,
        host: &HostId,
        process: Process,
        out: &mut Out,
    ) {
        let Some(live) = self.fleet.current(host, process) else {
            return reject(out, host, Rejected::StaleProcess(process));
        };
        self.blacklist.went(now, host, process.local_rank);
        if live.life == Life::Stopping {
            // The process was failing by itself when it was asked to stop.
            if self.registry.record(host, process, State::Failed) {
                self.may_relapse(host, process);
            }
        } else {
            // The slot is free again only when the process is reaped (R4).
            self.fleet.set_life(host, process, Life::Stopping);
            self.process_failed(now, host, live, None, &[], out);
            if planted(Mutant::FreeAtLoss) {
                self.fleet.end(host, process);
            }
        }
    }

    /// Handles the failure of a process: as a member of the last round, or before it was in one.
    pub(super) fn process_failed(
        &mut self,
        now: Time,
        host: &HostId,
        live: Live,
        exit: Option<Exit>,
        tail: &[String],
        out: &mut Out,
    ) {
        if self.groups.leads() {
            return self.group_member_failed(now, host, live, exit, tail, out);
        }
        let member = self.registry.state(host, live.process);
        if matches!(member, Some(State::Ready | State::Finished)) {
            self.member_failed(now, host, live, exit, tail, out);
        } else {
            self.slot_failed(now, host, live, exit, tail, out);
        }
    }

    /// Handles the failure of a member of a round, or of a worker that was expected back from one.
    fn member_failed(
        &mut self,
        now: Time,
        host: &HostId,
        live: Live,
        exit: Option<Exit>,
        tail: &[String],
        out: &mut Out,
    ) {
        let process = live.process;
        self.waitlist.leave(host, process);
        self.suspicion.failed(now, host);
        let state = match () {
            () if planted(Mutant::FailedIsLost) => State::LostWithHost,
            () => State::Failed,
        };
        self.registry.record(host, process, state);
        let domain = self.failure_domain(host, process);
        self.may_relapse(host, process);
        if let Some(exit) = &exit {
            self.relapses.exited(host, process, exit, domain.clone());
        }
        self.note_failure(host, process, exit, tail, out);
        self.domain_failed(now, domain, live.since, out);
        self.loss_grace_until = None;
        self.rounds.disturb(
            now,
            Cause::WorkerFailed {
                host: host.clone(),
                process,
            },
        );
        // A round that is formed without the process continues.
        let concerned = match &self.rounds.phase {
            Phase::Forming(forming) => forming.leaving.is_some() || forming.has(host, process),
            Phase::Idle | Phase::Training(_) => true,
        };
        if concerned || !self.settings.elastic {
            self.after_failure(now, out);
        }
    }

    /// Records that a member failed by itself, which may be the fault of the program.
    fn may_relapse(&mut self, host: &HostId, process: Process) {
        if let Some((_, round)) = self.registry.rank(host, process) {
            self.relapses.failed(host, process, round);
        }
    }

    /// Handles the failure of a process before it was in a round: it costs only its own slot.
    pub(super) fn slot_failed(
        &mut self,
        now: Time,
        host: &HostId,
        live: Live,
        exit: Option<Exit>,
        tail: &[String],
        out: &mut Out,
    ) {
        let process = live.process;
        self.startup.failures += 1;
        self.waitlist.leave(host, process);
        self.note_failure(host, process, exit, tail, out);
        let domain = match () {
            () if planted(Mutant::HostForSlot) => Domain::Host(host.clone()),
            () => Domain::Slot(host.clone(), process.local_rank),
        };
        self.domain_failed(now, domain, live.since, out);
        let planned = match &self.rounds.phase {
            Phase::Forming(forming) => forming.has(host, process),
            _ => false,
        };
        if planned {
            self.rounds.disturb(
                now,
                Cause::WorkerFailed {
                    host: host.clone(),
                    process,
                },
            );
            self.after_failure(now, out);
        } else if !self.settings.elastic {
            self.end(Outcome::WorkerFailed(Reason::Standard), out);
        }
    }

    /// Handles the loss of an agent, or that it never came: its host failed, and its workers and its memory are lost.
    pub(super) fn agent_lost(&mut self, now: Time, host: &HostId, why: String, out: &mut Out) {
        self.disconnect(host, out);
        self.host_lost(now, host, why, out);
    }

    /// As `agent_lost`, for a connection that is closed already.
    pub(super) fn host_lost(&mut self, now: Time, host: &HostId, why: String, out: &mut Out) {
        let begun = self.fleet.host(host).map_or(now, |state| state.since);
        // A host that registered itself and that its list has dropped since is not expected back either.
        let leaves = self.hosts.is_draining(host) || self.hosts.is_left_out(host);
        // A standard job cannot go on without it.
        let goes = leaves && self.settings.elastic;
        let was_away = self.away.remove(host);
        if !was_away {
            self.set_apart(now, host);
        }
        let lost = self.lose_agent(host);
        let trained = lost.iter().any(|live| self.is_in_play(live));
        if trained || !was_away {
            self.record_lost(now, host, &lost);
        }
        if self.results.outcome().is_some() {
            return;
        }
        self.dirty_hosts.insert(host.clone());
        if self.settings.self_registration {
            self.hosts.forget(host);
            self.capacity_dirty = true;
        }
        // The loss of an unused host is no failure: the host was drained, or its workers have succeeded.
        let used = !lost.is_empty() || !self.is_ending() && self.has_usable_slot(host);
        if used && goes && !planted(Mutant::DrainIsFailure) {
            self.capacity_dirty = true;
            let host = host.clone();
            out.push(Command::Announce(Decision::WentEarly { host, why }));
        } else if used {
            self.note_host_failure(host, why, out);
            self.domain_failed(now, Domain::Host(host.clone()), begun, out);
        }
        let concerned = self.break_off(now, host, trained, out);
        if !concerned && !self.settings.elastic && used {
            self.end(Outcome::WorkerFailed(Reason::Standard), out);
        }
    }

    pub(super) fn note_host_failure(&mut self, host: &HostId, why: String, out: &mut Out) {
        out.push(Command::Announce(Decision::HostFailed {
            host: host.clone(),
            why: why.clone(),
        }));
        self.results.failed(Failure {
            host: host.clone(),
            process: None,
            member: None,
            exit: None,
            tail: Vec::new(),
            why: Some(why),
        });
    }

    /// Ends the round, or a job that is not elastic.
    pub(super) fn after_failure(&mut self, now: Time, out: &mut Out) {
        if !self.settings.elastic {
            return self.end(Outcome::WorkerFailed(Reason::Standard), out);
        }
        let forming = matches!(self.rounds.phase, Phase::Forming(_));
        if forming && planted(Mutant::SecondFailure) {
            return;
        }
        self.abort_rounds(out);
        if self.is_ending() {
            // Success of all is no longer possible. Finished workers may still end by themselves until the exit timeout.
            self.exits_since.get_or_insert(now);
            self.stop_all_outsiders(out);
        }
    }

    /// Aborts the planned round and the one that trains, on every host that takes part in them.
    pub(super) fn abort_rounds(&mut self, out: &mut Out) {
        let members = match &self.rounds.phase {
            Phase::Idle => return,
            Phase::Training(training) => &training.members,
            Phase::Forming(forming) => &forming.members,
        };
        let mut hosts: Vec<HostId> = members.keys().cloned().collect();
        self.forsake_away();
        // The round that is being left may have members on more hosts than the planned one.
        let mut returning: Vec<(HostId, Process, Round)> = Vec::new();
        for (host, state) in self.fleet.hosts() {
            let training = state.live().filter_map(|live| match live.life {
                Life::Training { round } => Some((live.process, round)),
                _ => None,
            });
            let finished = |process| self.registry.state(host, process) == Some(State::Finished);
            let leaves = training.filter(|(process, _)| !finished(*process));
            returning.extend(leaves.map(|(process, round)| (host.clone(), process, round)));
            if state.has_memory {
                hosts.push(host.clone());
            }
        }
        hosts.sort();
        hosts.dedup();
        hosts.retain(|host| {
            self.fleet
                .host(host)
                .is_some_and(|state| state.up().is_some())
        });
        for (host, process, round) in returning {
            self.fleet
                .set_life(&host, process, Life::Returning { round });
        }
        for aborted in self.rounds.abort() {
            let (round, started) = (aborted.round, aborted.started);
            out.push(Command::Announce(Decision::RoundAborted { round, started }));
            for host in &hosts {
                self.send(host, AgentCommand::Abort { round }, out);
            }
        }
        self.suspicion.ended(self.now);
        self.capacity_dirty = true;
    }

    /// Stops every process that is in no round, once no further round will be formed.
    pub(super) fn stop_all_outsiders(&mut self, out: &mut Out) {
        let mut stop = Vec::new();
        for (host, state) in self.fleet.hosts() {
            let outside = |life| {
                matches!(
                    life,
                    Life::Starting { .. } | Life::Waiting | Life::Returning { .. }
                )
            };
            stop.extend(
                state
                    .live()
                    .filter(|l| outside(l.life))
                    .map(|l| (host.clone(), l.process)),
            );
        }
        for (host, process) in stop {
            self.stop(&host, process, StopReason::JobEnded, out);
        }
    }

    pub(super) fn domain_failed(&mut self, now: Time, domain: Domain, begun: Time, out: &mut Out) {
        let random = &mut self.random;
        if let Some(until) = self.blacklist.fail(now, domain.clone(), begun, random) {
            out.push(Command::Announce(Decision::Blacklisted {
                domain,
                out: until,
            }));
        }
        self.capacity_dirty = true;
    }

    pub(super) fn note_failure(
        &mut self,
        host: &HostId,
        process: Process,
        exit: Option<Exit>,
        tail: &[String],
        out: &mut Out,
    ) {
        let member = self.registry.rank(host, process);
        if exit.is_none() {
            (self.unexplained).insert((host.clone(), process), member);
        }
        self.results.failed(Failure {
            host: host.clone(),
            process: Some(process),
            member,
            exit: exit.clone(),
            tail: tail.to_vec(),
            why: None,
        });
        out.push(Command::Announce(Decision::WorkerFailed {
            host: host.clone(),
            process,
            member,
            exit,
        }));
    }

    /// Records how a process ended. Says so if it has failed before, when that was not known.
    pub(super) fn exit_known(
        &mut self,
        host: &HostId,
        process: Process,
        exit: &Exit,
        tail: &[String],
        out: &mut Out,
    ) {
        self.results.exited(host, process, exit, tail);
        let failed = self.unexplained.remove(&(host.clone(), process));
        if let Some(member) = failed {
            let (host, exit) = (host.clone(), exit.clone());
            out.push(Command::Announce(Decision::WorkerEnded {
                host,
                process,
                member,
                exit,
            }));
        }
    }
}

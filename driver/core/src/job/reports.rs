//! Handles the reports of agents.

use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, HostId, Process, Round,
    control::{Exit, StopReason, Waiting},
};

use super::{Job, Out, planning::Completed, reject};
use crate::{
    Command, Decision, Rejected, Time,
    fleet::{Life, Live},
    mutant::{Mutant, planted},
    registry::State,
    rounds::{Cause, Phase, ReadyHost},
};

impl Job {
    pub(super) fn reported(
        &mut self,
        now: Time,
        host: &HostId,
        report: AgentReport,
        out: &mut Out,
    ) {
        match report {
            AgentReport::Attached { process } => self.worker_attached(now, host, process, out),
            AgentReport::FreePort { port } => self.set_free_port(host, port),
            AgentReport::Waiting { workers } => {
                for worker in workers {
                    // An older agent sends no report when a worker attaches.
                    if self.groups.leads() {
                        self.worker_attached(now, host, worker.process, out);
                    }
                    self.worker_waits(now, host, worker, out);
                }
            }
            AgentReport::Ready {
                round,
                members,
                kept,
                free_port,
            } => {
                let answer = ReadyHost { members, kept };
                self.host_ready(host, round, answer, free_port, out);
            }
            AgentReport::BoundaryCounted { round, highest } => {
                self.host_counted(host, round, highest, out)
            }
            AgentReport::PeerLost {
                round,
                process,
                unreachable,
            } => {
                self.round_broken(now, host, round, process, &unreachable, out);
            }
            AgentReport::Unable { round, why } => self.host_unable(now, host, round, why, out),
            AgentReport::WorkerLost { process, .. } => self.worker_lost(now, host, process, out),
            AgentReport::Finished { round, workers } => {
                for process in workers {
                    self.worker_finished(host, round, process, out);
                }
            }
            AgentReport::Exited {
                process,
                exit,
                tail,
                stopped,
            } => {
                self.worker_exited(now, host, (process, stopped), exit, &tail, out);
            }
            AgentReport::ServerExited {
                process,
                exit,
                tail,
                stopped,
            } => self.server_exited(now, host, (process, stopped), exit, tail, out),
            AgentReport::Probed {
                number,
                unreachable,
            } => self.probed(now, host, number, &unreachable, out),
            AgentReport::Noticed { notice } => self.noticed_by_agent(now, host, notice, out),
            AgentReport::Leaving => {
                // The end of its connection is the loss of its host.
                if let Some(up) = self.fleet.up_mut(host) {
                    up.returns = false;
                }
            }
            AgentReport::DurableWritten {
                commit,
                bytes,
                took,
            } => out.push(Command::Announce(Decision::DurableWritten {
                host: host.clone(),
                commit,
                bytes,
                took,
            })),
            AgentReport::DurableFound {
                number,
                commits,
                refused,
            } => self.stored_found(host, number, commits, refused, out),
            AgentReport::DurableLoaded { number, refused } => {
                self.stored_loaded(host, number, refused, out);
            }
            AgentReport::DurableFailed { why } => {
                let host = host.clone();
                out.push(Command::Announce(Decision::DurableFailed { host, why }));
            }
            AgentReport::Replicated {
                commit,
                bytes,
                took,
            } => {
                let replicated = Decision::Replicated {
                    host: host.clone(),
                    commit,
                    bytes,
                    took,
                };
                self.replicated(host, replicated, out);
            }
            AgentReport::CutHeld { commit, held } => self.cut_held(now, host, commit, held),
            AgentReport::ReplicaFailed { why, commit } => {
                if let Some(commit) = commit {
                    self.cut_failed(host, commit);
                }
                let host = host.clone();
                out.push(Command::Announce(Decision::ReplicaFailed { host, why }));
            }
            AgentReport::Heartbeat { .. } => {}
        }
    }

    fn set_free_port(&mut self, host: &HostId, port: u16) {
        if self.groups.leads() && planted(Mutant::GroupOldPort) {
            return;
        }
        if let Some(up) = self.fleet.up_mut(host) {
            up.free_port = port;
        }
    }

    fn worker_waits(&mut self, now: Time, host: &HostId, worker: Waiting, out: &mut Out) {
        let Some(live) = self.fleet.current(host, worker.process) else {
            return reject(out, host, Rejected::StaleProcess(worker.process));
        };
        // A late repeat is of an earlier visit to `run()` (R3).
        let late = match live.life {
            Life::Training { round } | Life::Returning { round } => worker.left != Some(round),
            _ => false,
        };
        if late && !planted(Mutant::RepeatedWaiting) {
            return reject(out, host, Rejected::Repeated);
        }
        match live.life {
            // The worker was asked to stop before its report arrived.
            Life::Stopping => {}
            Life::Waiting => reject(out, host, Rejected::Repeated),
            Life::Starting { .. } | Life::Returning { .. } | Life::Training { .. } => {
                self.fleet
                    .set_waiting(host, worker.process, worker.data_port);
                self.waitlist.join(now, host, worker.process);
                self.probing.look(host);
                self.blacklist.came(now, host, worker.process.local_rank);
                if !std::mem::replace(&mut self.sdk_seen, true) && self.fleet.done() > 0 {
                    // Processes that ended without joining did no work: other workers are needed in their place.
                    self.capacity_dirty = true;
                }
                if matches!(live.life, Life::Training { .. }) {
                    self.member_left();
                }
                // If the capacity is dirty, workers without a usable slot are stopped after the count. So are those of
                // draining hosts: whether one is needed depends on all other workers, and some of them may still come back.
                let usable = self.capacity.is_usable(host, worker.process.local_rank);
                self.capacity_dirty |= !usable && self.hosts.is_draining(host);
                if !usable && !self.capacity_dirty || self.is_ending() {
                    self.stop_outsider(host, worker.process, out);
                }
            }
        }
    }

    /// Handles a member that has left its round at the common boundary without a plan that includes it. When all
    /// members have left, the round is over and the job waits for slots.
    fn member_left(&mut self) {
        let trains = matches!(self.rounds.phase, Phase::Training(_));
        if trains && self.fleet.census().training == 0 && !self.waits_for_away() {
            self.rounds.phase = Phase::Idle;
            self.capacity_dirty = true;
        }
    }

    fn host_ready(
        &mut self,
        host: &HostId,
        round: Round,
        answer: ReadyHost,
        free_port: u16,
        out: &mut Out,
    ) {
        let members = answer.members.iter();
        let ports: Vec<_> = members.map(|held| (held.process, held.data_port)).collect();
        let round = self.mistaken(Mutant::StaleReady, round);
        let counted = self.rounds.ready(host, round, answer);
        let twice = planted(Mutant::RepeatedReady);
        let again = counted.is_none() && twice;
        let counted = if again {
            self.rounds.miscount(round)
        } else {
            counted
        };
        let Some(complete) = counted else {
            return reject(out, host, Rejected::StaleRound(round));
        };
        self.set_free_port(host, free_port);
        self.fleet.set_data_ports(host, ports);
        if complete {
            self.completed = Some(Completed::Answers(round));
        }
    }

    /// The round that a message is about; planted mistakes replace it.
    fn mistaken(&self, mutant: Mutant, round: Round) -> Round {
        match &self.rounds.phase {
            Phase::Forming(forming) if planted(mutant) => forming.round,
            Phase::Training(training) if planted(mutant) => training.round,
            _ => round,
        }
    }

    fn host_counted(&mut self, host: &HostId, round: Round, highest: Boundary, out: &mut Out) {
        let round = self.mistaken(Mutant::StaleCount, round);
        match self.rounds.counted(host, round, highest) {
            None => reject(out, host, Rejected::StaleRound(round)),
            Some(None) => {}
            Some(Some(at)) => self.completed = Some(Completed::Counts(round, at)),
        }
    }

    /// Handles a worker that lost a peer while no death is known: stops the round and waits a moment for a report of
    /// the death.
    fn round_broken(
        &mut self,
        now: Time,
        host: &HostId,
        round: Round,
        process: Process,
        unreachable: &[u32],
        out: &mut Out,
    ) {
        let Some(live) = self.fleet.current(host, process) else {
            return reject(out, host, Rejected::StaleProcess(process));
        };
        if matches!(live.life, Life::Returning { .. } | Life::Stopping)
            && !unreachable.is_empty()
            && self.registry.round() == Some(round)
        {
            // Another worker has reported earlier that the round is broken. This one may have been told to stop since.
            return self.suspicion.broke(round, host, unreachable);
        }
        if live.life != (Life::Training { round }) {
            return reject(out, host, Rejected::StaleRound(round));
        }
        let patience = self.answer_timeout();
        if let Phase::Forming(forming) = &mut self.rounds.phase
            && forming
                .leaving
                .take_if(|left| left.round == round)
                .is_some()
        {
            // The members that were to leave at the boundary would wait for it in vain.
            self.suspicion.broke(round, host, unreachable);
            forming.deadline = now + patience;
            return self.abort_left(round, out);
        }
        let trains = matches!(&self.rounds.phase, Phase::Training(t) if t.round == round);
        if !trains {
            return reject(out, host, Rejected::StaleRound(round));
        }
        if self.is_ending() {
            // The worker is back at `run()` and no further round is formed, so it cannot end by itself.
            return self.stop(host, process, StopReason::JobEnded, out);
        }
        self.suspicion.broke(round, host, unreachable);
        let may_be_away = self.may_be_away(round, unreachable);
        if self.settings.elastic && may_be_away && self.leave_behind(now, out) {
            // No report of the peer will come.
            return;
        }
        self.rounds
            .disturb(now, Cause::PeerLost { host: host.clone() });
        self.abort_rounds(out);
        self.loss_grace_until = Some(now + self.suspicion.pause());
    }

    /// Whether a peer with one of these indices may be on a host that is away. A report without a name is about any host.
    fn may_be_away(&self, round: Round, unreachable: &[u32]) -> bool {
        let mut named = self.suspicion.named(round, unreachable).peekable();
        named.peek().is_none() || named.any(|host| self.away.contains(host))
    }

    fn worker_finished(&mut self, host: &HostId, round: Round, process: Process, out: &mut Out) {
        if self.registry.round() != Some(round) {
            return reject(out, host, Rejected::StaleRound(round));
        }
        let first = !self.is_ending();
        if !self.registry.record(host, process, State::Finished) {
            return reject(out, host, Rejected::Repeated);
        }
        if first {
            self.begin_ending(out);
        }
    }

    fn worker_exited(
        &mut self,
        now: Time,
        host: &HostId,
        (process, stopped): (Process, bool),
        exit: Exit,
        tail: &[String],
        out: &mut Out,
    ) {
        self.exit_known(host, process, &exit, tail, out);
        let Some(mut live) = self.fleet.current(host, process) else {
            return reject(out, host, Rejected::StaleProcess(process));
        };
        if stopped {
            // A former driver may have asked for that, and have lost the record of it.
            self.registry.record(host, process, State::Stopped);
            self.waitlist.leave(host, process);
            live.life = Life::Stopping;
        }
        self.dirty_hosts.insert(host.clone());
        let domain = self.failure_domain(host, process);
        self.relapses.exited(host, process, &exit, domain);
        self.fleet_exit(now, host, live, exit, tail, out);
    }

    pub(super) fn fleet_exit(
        &mut self,
        now: Time,
        host: &HostId,
        live: Live,
        exit: Exit,
        tail: &[String],
        out: &mut Out,
    ) {
        let process = live.process;
        self.blacklist.went(now, host, process.local_rank);
        self.reaped(host, process);
        let old = self.groups.leads() && planted(Mutant::GroupOldMemberFails);
        match live.life {
            Life::Stopping if exit.is_success() || !(planted(Mutant::RemovedFails) || old) => {
                self.fleet.end(host, process);
            }
            Life::Starting { .. } if exit.is_success() => {
                self.counted.forget();
                self.fleet.end_done(host, process);
            }
            _ if exit.is_success() && self.registry.rank(host, process).is_some() => {
                self.fleet.end(host, process);
                self.worker_succeeded(now, host, process, out);
            }
            _ => {
                self.fleet.end(host, process);
                self.process_failed(now, host, live, Some(exit), tail, out);
            }
        }
    }

    fn worker_succeeded(&mut self, now: Time, host: &HostId, process: Process, out: &mut Out) {
        let first = !self.is_ending();
        self.registry.record(host, process, State::Successful);
        self.exits_since.get_or_insert(now);
        if self.groups.leads() && planted(Mutant::GroupFirstSuccess) {
            return self.end(crate::results::Outcome::Succeeded, out);
        }
        if first {
            self.begin_ending(out);
        }
    }

    /// Begins the end of the job at the first success: no further round is formed, and workers outside of the round are
    /// stopped.
    fn begin_ending(&mut self, out: &mut Out) {
        out.push(Command::Announce(Decision::Finishing));
        let mut held = (self.rounds.withdraw()).filter(|_| !planted(Mutant::HoldKept));
        if let Some((planned, left)) = self.rounds.unplan() {
            let round = planned.round;
            let started = false;
            out.push(Command::Announce(Decision::RoundAborted { round, started }));
            for host in planned.hosts {
                self.send(&host, AgentCommand::Abort { round }, out);
            }
            held = left.map(|left| (left.round, left.hosts));
        }
        if let Some((round, hosts)) = held {
            for host in hosts {
                self.send(&host, AgentCommand::Withdraw { round }, out);
            }
        }
        self.stop_all_outsiders(out);
    }
}

/// Whether a repeat of this report counts by a planted mistake. The number of a report refuses repeats before its content
/// does, so a mistake in the content is planted together with this one.
pub(super) fn counts_twice(report: &AgentReport) -> bool {
    match report {
        AgentReport::Ready { .. } => planted(Mutant::RepeatedReady),
        AgentReport::Waiting { .. } => planted(Mutant::RepeatedWaiting),
        AgentReport::BoundaryCounted { .. } => planted(Mutant::StaleCount),
        _ => false,
    }
}

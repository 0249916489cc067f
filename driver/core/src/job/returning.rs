//! The return of an agent with the workers that it has kept ([`super::away`]).
//!
//! 1. Its reports that were never acknowledged are applied, in order, each once.
//! 2. Its processes are compared with those of the job: what the agent does not have is lost, what the job does not know
//!    is stopped.
//! 3. Commands that were lost with the connection are sent again: an abort, a stop. A process whose start was lost is
//!    replaced by another one.
//! 4. Members of the round that trains stay in it. Those of another round come to `run()` as survivors, with their
//!    commits.
//!
//! Everything of this is sent before the first answer to a heartbeat, which renews the lease of the workers (R11).

use std::collections::BTreeSet;

use elasticrun_protocol::{
    AgentCommand, AgentReport, FromAgent, HostId, Process,
    control::{AdoptedPhase, AdoptedWorker, Adoption, StopReason},
};

use super::{Job, Out, reject};
use crate::{
    AgentConnected, Command, Decision, Rejected, Time,
    blacklist::Domain,
    fleet::{AgentUp, Life, Live},
    mutant::{Mutant, planted},
    registry::State,
    rounds::{Cause, Phase},
};

impl Job {
    /// Takes back an agent that has kept its workers, or sends it away to begin anew.
    pub(super) fn agent_returned(
        &mut self,
        now: Time,
        agent: &AgentConnected,
        adoption: &Adoption,
        out: &mut Out,
    ) {
        let host = &agent.host;
        if adoption.run_id == self.run_id && adoption.epoch > self.epoch {
            // This driver was replaced. The workers are not its own to end.
            reject(out, host, Rejected::OtherDriver(adoption.epoch));
            return self.refuse(agent, out);
        }
        if !self.is_ours(agent, adoption) {
            reject(out, host, Rejected::Unadoptable);
            let (host, instance) = (host.clone(), agent.instance);
            return out.push(Command::SendBack { host, instance });
        }
        self.close(host, out);
        let was_away = self.away.remove(host);
        self.come_back(now, agent, adoption, was_away);
        let (id, instance) = (host.clone(), agent.instance);
        out.push(Command::Admit {
            host: id,
            instance,
            adopted: true,
        });
        for FromAgent { number, report, .. } in &adoption.reports {
            if self.is_new(host, *number) || planted(Mutant::ReportsRepeated) {
                match self.results.outcome() {
                    None => self.reported_in_turn(now, host, *number, report.clone(), out),
                    Some(_) => self.repeated(now, host, report.clone(), out),
                }
            }
        }
        if self.results.outcome().is_some() {
            self.abort_past_rounds(host, adoption, out);
        } else {
            self.compare(now, host, adoption, out);
            self.send_again(now, host, was_away, out);
            if !self.is_taking_over() {
                // Failures that had to wait while the host was away count by now.
                self.fleet.release_applied(host);
            }
            self.store_reader_connected(host, agent.durable);
        }
        self.send_beat(host, 0, out);
        let host = host.clone();
        out.push(Command::Announce(Decision::HostReturned { host }));
    }

    /// Whether these are the processes of this driver, as it knows them. The connection over which this driver took them back
    /// from a former one may have ended before the agent knew of that.
    pub(super) fn is_ours(&self, agent: &AgentConnected, adoption: &Adoption) -> bool {
        let known = self
            .fleet
            .host(&agent.host)
            .and_then(|state| state.last_up());
        let same = known.is_some_and(|up| up.returns && up.agent == agent.agent);
        same && adoption.run_id == self.run_id && adoption.epoch <= self.epoch
    }

    /// Puts the agent, its processes and its memory back.
    fn come_back(
        &mut self,
        now: Time,
        agent: &AgentConnected,
        adoption: &Adoption,
        was_away: bool,
    ) {
        let host = &agent.host;
        let Some(back) = self.fleet.come_back(host, |up| AgentUp {
            instance: agent.instance,
            address: agent.address,
            memory_port: agent.memory_port,
            free_port: agent.free_port,
            // An agent that returns has not ended with its launch.
            launch_ended: None,
            ..up
        }) else {
            return;
        };
        self.heard(now, host);
        self.probing.connected(host, agent.probes);
        let is_able = self.keeps_replicas(agent);
        self.replication.connected(host, is_able, true);
        self.servers.connected(host);
        if !adoption.kept.is_empty() {
            // A replica may have become complete meanwhile.
            self.fleet.set_memory(host);
        }
        if self.waitlist.iter().any(|(waiting, _)| waiting == host) {
            // Its probe is gone with the connection.
            self.probing.look(host);
        }
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.agents.insert(host.clone());
        }
        if was_away {
            self.put_back(now, host, &back.live, adoption);
            if back.memory_found {
                self.memory_lost.remove(host);
            }
            if back.planned != Some(self.rounds.last()) {
                self.hosts.move_to_end(host);
            }
        }
        self.dirty_hosts.insert(host.clone());
        // Its slots count again for a group, and may have become unusable meanwhile.
        self.counted.forget();
        self.capacity_dirty = true;
        self.going_back.changed = true;
    }

    /// Puts the processes of a host that was away back where they were.
    fn put_back(&mut self, now: Time, host: &HostId, lives: &[Live], adoption: &Adoption) {
        for live in lives {
            let process = live.process;
            let life = self.life_now(now, live, adoption);
            let state = match life {
                Life::Stopping => State::Stopped,
                _ => State::Ready,
            };
            self.registry.returned(host, process, state);
            self.fleet.set_life(host, process, life);
            match life {
                // Its start timeout may have passed unnoticed.
                Life::Starting { .. } => self.starts.push_back((now, host.clone(), Some(process))),
                Life::Stopping => {}
                _ => self.blacklist.came(now, host, process.local_rank),
            }
            if life == Life::Waiting {
                self.waitlist.join(now, host, process);
                self.probing.look(host);
            }
        }
    }

    /// The state of a process that was away: what it takes part in may be over.
    fn life_now(&self, now: Time, live: &Live, adoption: &Adoption) -> Life {
        match live.life {
            Life::Starting { .. } => Life::Starting { since: now },
            // The end of a round does not revoke the result of a member that has finished.
            Life::Training { round } | Life::Returning { round }
                if self.registry.round() == Some(round) && has_finished(adoption, live.process) =>
            {
                Life::Training { round }
            }
            Life::Training { round } if !self.groups.leads() && !self.is_in_play(live) => {
                Life::Returning { round }
            }
            life => life,
        }
    }

    /// Applies a report that was lost with the connection.
    pub(super) fn repeated(
        &mut self,
        now: Time,
        host: &HostId,
        report: AgentReport,
        out: &mut Out,
    ) {
        match report {
            AgentReport::Exited {
                process,
                exit,
                tail,
                ..
            } if self.results.outcome().is_some() => {
                self.exit_known(host, process, &exit, &tail, out);
            }
            _ if self.results.outcome().is_some() => {}
            report => self.reported(now, host, report, out),
        }
    }

    /// Compares the processes of an agent with those of the job. A failure that waits for the take-over is not counted here.
    fn compare(&mut self, now: Time, host: &HostId, adoption: &Adoption, out: &mut Out) {
        for worker in &adoption.workers {
            match self.fleet.current(host, worker.process) {
                Some(_) if self.failure_waits(host, worker.process) => {}
                Some(live) => self.compare_one(now, host, live, worker, out),
                None if worker.phase == AdoptedPhase::Dying => {}
                None => self.send_stop(host, worker.process, StopReason::Removed, out),
            }
        }
        let lives: Vec<Live> = (self.fleet.host(host))
            .map(|state| state.live().collect())
            .unwrap_or_default();
        let has =
            |live: &&Live| (adoption.workers.iter()).any(|worker| worker.process == live.process);
        for live in lives.iter().filter(|live| !has(live)) {
            if !self.failure_waits(host, live.process) {
                self.missing(now, host, *live, adoption, out);
            }
        }
        if self.is_ending() {
            self.stop_all_outsiders(out);
        }
    }

    /// Ends the rounds of an agent that are over, although the job has ended as well: until their workers have ended, the
    /// answers to heartbeats renew the lease, and the workers would train on (R11).
    fn abort_past_rounds(&self, host: &HostId, adoption: &Adoption, out: &mut Out) {
        if self.groups.leads() {
            return;
        }
        let in_play = |worker: &AdoptedWorker| {
            let live = self.fleet.current(host, worker.process);
            live.is_some_and(|live| self.is_in_play(&live))
        };
        let past: BTreeSet<_> = (adoption.workers.iter())
            .filter(|worker| !in_play(worker))
            .filter_map(|worker| match worker.phase {
                AdoptedPhase::Training { round } => Some(round),
                _ => None,
            })
            .collect();
        for round in past {
            self.send(host, AgentCommand::Abort { round }, out);
        }
    }

    /// Sends a plan again that the agent may not have received. Ends a round that its members are leaving: the agent has
    /// withdrawn the hold with its connection.
    fn send_again(&mut self, now: Time, host: &HostId, was_away: bool, out: &mut Out) {
        let leaves = match &self.rounds.phase {
            Phase::Idle => false,
            Phase::Training(training) => {
                training.hold.is_some() && training.members.contains_key(host)
            }
            Phase::Forming(forming) => {
                (forming.leaving.as_ref()).is_some_and(|left| left.members.contains_key(host))
            }
        };
        if leaves && !was_away {
            let host = host.clone();
            self.rounds.disturb(now, Cause::HostFailed { host });
            return self.after_failure(now, out);
        }
        if let Phase::Forming(forming) = &self.rounds.phase
            && forming.missing.contains(host)
        {
            let members = forming.members.get(host).cloned().unwrap_or_default();
            let round = forming.round;
            self.send(host, AgentCommand::Plan { round, members }, out);
        }
    }

    /// Handles a process that its agent does not have: it has ended, or its start was lost with the connection.
    fn missing(
        &mut self,
        now: Time,
        host: &HostId,
        live: Live,
        adoption: &Adoption,
        out: &mut Out,
    ) {
        let never = !(adoption.starts.iter()).any(|last| {
            last.local_rank == live.process.local_rank && last.generation >= live.process.generation
        });
        let in_play = self.is_in_play(&live);
        self.fleet.end(host, live.process);
        self.waitlist.leave(host, live.process);
        self.blacklist.went(now, host, live.process.local_rank);
        self.reaped(host, live.process);
        self.dirty_hosts.insert(host.clone());
        if never && in_play {
            // The group lacks a member that is named to all others.
            self.group_lost_host(now, host, out);
        } else if !never && live.life != Life::Stopping {
            self.process_failed(now, host, live, None, &[], out);
        }
    }

    /// Brings a process of an agent and what the job knows of it together.
    fn compare_one(
        &mut self,
        now: Time,
        host: &HostId,
        live: Live,
        worker: &AdoptedWorker,
        out: &mut Out,
    ) {
        let process = live.process;
        if worker.phase == AdoptedPhase::Dying {
            if live.life != Life::Stopping {
                self.worker_lost(now, host, process, out);
            }
            return;
        }
        if live.life == Life::Stopping {
            if !worker.stopping {
                self.send_stop(host, process, StopReason::Removed, out);
            }
            return;
        }
        let in_play = self.is_in_play(&live);
        if self.groups.leads() {
            return;
        }
        match worker.phase {
            AdoptedPhase::Training { round } if !in_play => {
                self.fleet
                    .set_life(host, process, Life::Returning { round });
                self.send(host, AgentCommand::Abort { round }, out);
            }
            AdoptedPhase::Joined | AdoptedPhase::Returning { .. } if in_play => {
                // It has left the round, or its start was lost with the connection.
                if !self.settings.elastic {
                    let why = "its connection broke as the round started".to_owned();
                    self.note_host_failure(host, why, out);
                    self.domain_failed(now, Domain::Host(host.clone()), live.since, out);
                }
                let host = host.clone();
                self.rounds.disturb(now, Cause::HostFailed { host });
                self.after_failure(now, out);
            }
            AdoptedPhase::Joined if matches!(live.life, Life::Returning { .. }) => {
                self.fleet.set_life(host, process, Life::Waiting);
                self.waitlist.join(now, host, process);
                self.probing.look(host);
            }
            // It was a member of a group when another one attached.
            AdoptedPhase::Starting if !matches!(live.life, Life::Starting { .. }) => {
                self.fleet
                    .set_life(host, process, Life::Starting { since: now });
                self.starts.push_back((now, host.clone(), Some(process)));
            }
            // It is in no round any more and never comes back to `run()`.
            AdoptedPhase::Finished if !in_play => {
                self.stop(host, process, StopReason::Removed, out);
            }
            _ => {}
        }
    }

    pub(super) fn send_stop(
        &self,
        host: &HostId,
        process: Process,
        why: StopReason,
        out: &mut Out,
    ) {
        self.send(host, AgentCommand::Stop { process, why }, out);
    }
}

/// Whether a process has returned from `run()`, as its agent says.
fn has_finished(adoption: &Adoption, process: Process) -> bool {
    let by_report = |report: &FromAgent| match &report.report {
        AgentReport::Finished { workers, .. } => workers.contains(&process),
        AgentReport::Exited {
            process: ended,
            exit,
            ..
        } => *ended == process && exit.is_success(),
        _ => false,
    };
    let finished = |worker: &AdoptedWorker| {
        worker.process == process && worker.phase == AdoptedPhase::Finished
    };
    adoption.workers.iter().any(finished) || adoption.reports.iter().any(by_report)
}

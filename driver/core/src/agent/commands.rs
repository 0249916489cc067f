//! Handles the commands of the driver.

use std::collections::BTreeSet;

use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, Process, Round, ToAgent,
    control::{Start, StopReason},
};

use super::{
    Command, Machine, Memory, Plan, Signal,
    replica::Following,
    worker::{Life, Worker},
};
use crate::{
    Time,
    mutant::{Mutant, planted},
};

impl Machine {
    pub(super) fn on_command(
        &mut self,
        now: Time,
        message: ToAgent,
        memory: &mut dyn Memory,
        out: &mut Vec<Command>,
    ) {
        // Commands of an older driver are ignored (R3). So is every command once the agent ends on its own.
        if message.epoch < self.epoch || self.by_itself {
            return;
        }
        match message.command {
            // Only the first command of a connection is one of these.
            AgentCommand::Setup(_) | AgentCommand::NameTaken { .. } => {}
            AgentCommand::Heartbeat {
                acked_count,
                lease,
                applied,
                ..
            } => {
                self.outbox.acknowledge(applied);
                self.beat_answered(now, acked_count, lease, memory, out);
            }
            AgentCommand::Spawn(spawn) => {
                let slot = spawn.process.local_rank;
                // One process a slot (R4): the driver waits until the last one is reaped, and so does the agent.
                let taken = self
                    .workers
                    .keys()
                    .any(|process| process.local_rank == slot);
                let newest = self.starts.get(&slot);
                let repeated = newest.is_some_and(|newest| *newest >= spawn.process.generation);
                let repeated = repeated && !planted(Mutant::RepeatedSpawn);
                let taken = taken && !planted(Mutant::FreeAtLoss);
                if !taken && !repeated && !self.ending {
                    self.starts.insert(slot, spawn.process.generation);
                    self.workers.insert(spawn.process, Worker::starting());
                    out.push(Command::Spawn(spawn));
                }
            }
            AgentCommand::Stop { process, why } => self.stop(now, process, why, out),
            AgentCommand::Plan { round, members } => {
                if round > self.seen {
                    self.seen = round;
                    self.plan = Some(Plan {
                        round,
                        members,
                        answered: false,
                    });
                }
            }
            AgentCommand::Start(start) => self.start(now, *start, memory, out),
            AgentCommand::Hold { round } => self.hold(round, memory, out),
            AgentCommand::Leave { round, at } => self.leave(round, at, memory),
            AgentCommand::Withdraw { round } => {
                self.released = self.released.max(round);
                for process in self.members_of(round) {
                    memory.withdraw(process, round);
                }
            }
            AgentCommand::Abort { round } => self.abort(now, round, out),
            AgentCommand::Probe {
                number,
                hosts,
                within,
            } => {
                if number > self.probe {
                    self.probe = number;
                    out.push(Command::Probe {
                        number,
                        hosts,
                        within,
                    });
                }
            }
            AgentCommand::Servers { number, run } => self.run_servers(now, number, &run, out),
            AgentCommand::FindDurable { number, from } => self.find_stored(number, from, out),
            AgentCommand::LoadDurable { number, stored, id } => {
                self.load_stored(number, stored, id, out);
            }
            AgentCommand::Replicate {
                number,
                round,
                planned,
                base,
                source,
            } => {
                let following = Following {
                    round,
                    planned,
                    base,
                    source,
                };
                self.replicate(now, number, following, memory, out);
            }
            AgentCommand::Cut(cut) => self.on_cut(now, cut, memory, out),
            AgentCommand::Shutdown => {
                self.shut_down = true;
                self.end_all(now, out);
            }
            AgentCommand::Kill => {
                self.shut_down = true;
                self.end_all(now, out);
                self.kill_all(now, out);
            }
        }
    }

    fn stop(&mut self, now: Time, process: Process, why: StopReason, out: &mut Vec<Command>) {
        let Some(worker) = self.workers.get_mut(&process) else {
            return;
        };
        if self.frozen && worker.ignores_lease() && !worker.is_stopping() {
            // Once continued, it would run until it acts on SIGTERM, perhaps beside the next group (R11).
            if worker.kill(now) {
                let signal = Signal::Kill;
                out.push(Command::Signal { process, signal });
            }
            return;
        }
        if !worker.stop(now, why, self.setup.grace) {
            return;
        }
        let attached = worker.is_attached();
        if attached {
            out.push(Command::TellStop { process, why });
        }
        let by_word = matches!(why, StopReason::Removed | StopReason::DomainFailed);
        if !attached || !by_word || planted(Mutant::RemovedSignalled) {
            out.push(Command::Signal {
                process,
                signal: Signal::Terminate,
            });
        }
    }

    fn start(&mut self, now: Time, start: Start, memory: &mut dyn Memory, out: &mut Vec<Command>) {
        let planned = self
            .plan
            .as_ref()
            .is_some_and(|plan| plan.round == start.round && plan.answered);
        if !planned {
            return;
        }
        self.plan = None;
        if self.lease_end() <= now {
            return self.refuse(&start, out);
        }
        for member in &start.members {
            // A member that has died meanwhile stays dead.
            if let Some(worker) = self.workers.get_mut(&member.process)
                && worker.life == Life::Joined
            {
                worker.life = Life::Training {
                    round: start.round,
                    leaving: false,
                };
            }
        }
        // This needs the round before.
        self.forget_kept(&start, memory, out);
        self.note_started(&start);
        self.follow_rank_0(now, &start);
        self.passes = start.base_shards.map(|_| start.round);
        out.push(Command::Start(Box::new(start)));
    }

    /// Frees the memory of dead processes that no round from this one on needs. Commits older than the base are not needed
    /// again. The base itself stays for one more round, in one copy: that of the keeper, if the keeper is one of these
    /// processes. Of a divided base all copies stay, since each may be the only one of its shard. Shards of a cut
    /// stay until the driver names another one. If this host has nothing else, an older commit stays until it has ([`Self::drop_fallback`]).
    fn forget_kept(&mut self, start: &Start, memory: &mut dyn Memory, out: &mut Vec<Command>) {
        let base = start.base;
        let newest = |process: &Process| memory.newest(*process);
        let holds_base = |process: &&Process| newest(process) == base;
        let keeper = start.keeper.as_ref().map(|keeper| &keeper.process);
        let copy = keeper
            .filter(|process| self.kept.contains(process))
            .filter(holds_base)
            .or_else(|| self.kept.iter().find(holds_base))
            .copied()
            .filter(|_| !planted(Mutant::EqualForgotten));
        let is_divided = start.base_shards.is_some() && !planted(Mutant::DeadShardForgotten);
        let fallback = self.fallback(base, memory);
        self.replicas.fallback = fallback;
        let (kept, forgotten): (BTreeSet<_>, BTreeSet<_>) =
            (self.kept.iter().copied()).partition(|process| {
                let is_shard = is_divided && holds_base(&process);
                let commits = memory.commits(*process);
                let is_cut = commits.iter().any(|key| self.cuts.needs(key.commit));
                is_shard
                    || is_cut
                    || [copy, fallback].contains(&Some(*process))
                    || newest(process) > base
            });
        self.kept = kept;
        out.extend((forgotten.into_iter()).map(|process| Command::Forget { process }));
    }

    /// Handles a start that reached no member: all members stay joined.
    pub(super) fn cannot_begin(&mut self, round: Round, why: String, out: &mut Vec<Command>) {
        for process in self.members_of(round) {
            if let Some(worker) = self.workers.get_mut(&process) {
                worker.life = Life::Joined;
            }
        }
        out.push(Command::AgentReport(AgentReport::Unable { round, why }));
    }

    fn hold(&mut self, round: Round, memory: &mut dyn Memory, out: &mut Vec<Command>) {
        let members = self.members_of(round);
        if members.is_empty() || round <= self.released {
            return;
        }
        let highest = members
            .into_iter()
            .map(|process| memory.hold(process, round))
            .max();
        let highest = highest.unwrap_or(Boundary(0));
        out.push(Command::AgentReport(AgentReport::BoundaryCounted {
            round,
            highest,
        }));
    }

    fn leave(&mut self, round: Round, at: Boundary, memory: &mut dyn Memory) {
        if round <= self.released {
            return;
        }
        for process in self.members_of(round) {
            if let Some(worker) = self.workers.get_mut(&process) {
                worker.life = Life::Training {
                    round,
                    leaving: true,
                };
            }
            memory.leave_at(process, round, at);
        }
    }

    fn abort(&mut self, now: Time, round: Round, out: &mut Vec<Command>) {
        if self.plan.as_ref().is_some_and(|plan| plan.round == round) {
            self.plan = None;
        }
        self.seen = self.seen.max(round);
        self.abort_members(now, round, out);
    }

    pub(super) fn abort_members(&mut self, now: Time, round: Round, out: &mut Vec<Command>) {
        let members = self.members_of(round);
        for process in &members {
            if let Some(worker) = self.workers.get_mut(process) {
                let times = if planted(Mutant::ReturnWithoutEnd) {
                    1000
                } else {
                    1
                };
                worker.life = Life::Returning {
                    round,
                    until: now + self.abort_timeout * times,
                };
            }
        }
        if !members.is_empty() {
            out.push(Command::Abort { round, members });
        }
    }

    /// Aborts every round that trains on this host.
    pub(super) fn abort_all(&mut self, now: Time, out: &mut Vec<Command>) {
        let trains = |worker: &Worker| match worker.life {
            Life::Training { round, .. } => Some(round),
            _ => None,
        };
        let rounds: BTreeSet<_> = self.workers.values().filter_map(trains).collect();
        for round in rounds {
            self.abort_members(now, round, out);
        }
    }

    pub(super) fn members_of(&self, round: Round) -> Vec<Process> {
        let trains = |worker: &Worker| matches!(worker.life, Life::Training { round: own, .. } if own == round);
        self.workers
            .iter()
            .filter(|(_, w)| trains(w))
            .map(|(process, _)| *process)
            .collect()
    }
}

//! Handles messages and ends of workers, and derives the reports to the driver.

use std::collections::BTreeSet;

use elasticrun_protocol::{
    AgentReport, FromWorker, Process,
    control::{Exit, Held, Kept},
};

use super::{
    Command, Machine, Memory, Signal,
    worker::{Life, Worker},
};
use crate::{
    Time,
    mutant::{Mutant, planted},
};

impl Machine {
    pub(super) fn on_report(
        &mut self,
        now: Time,
        process: Process,
        message: FromWorker,
        out: &mut Vec<Command>,
    ) {
        let Some(worker) = self.workers.get_mut(&process) else {
            return;
        };
        match message {
            FromWorker::Attach { .. } => worker.attached(now),
            FromWorker::Join {
                left,
                told,
                data_port,
                commit,
                empty,
                unreachable,
            } => {
                let before = worker.life;
                if matches!(before, Life::Dying | Life::Finished) {
                    return;
                }
                worker.joined(left, data_port, commit, empty);
                if worker.is_stopping() {
                    return;
                }
                match before {
                    Life::Training { round, leaving } if !(leaving && told) => {
                        out.push(Command::AgentReport(AgentReport::PeerLost {
                            round,
                            process,
                            unreachable,
                        }));
                    }
                    // The driver expects this worker; the worker's answer to the next plan is enough. The unreachable
                    // hosts are reported all the same: the abort came because another worker reported first.
                    Life::Returning { .. } => {
                        if let Some(round) = left.filter(|_| !unreachable.is_empty()) {
                            out.push(Command::AgentReport(AgentReport::PeerLost {
                                round,
                                process,
                                unreachable,
                            }));
                        }
                        // Rounds may have been planned without this worker while the driver was out of reach.
                        if self.has_returned {
                            self.waiting.push(process);
                        }
                    }
                    _ => self.waiting.push(process),
                }
            }
            // As certain as a death, and followed by an exit.
            FromWorker::Failed => self.died(now, process, out),
            // The worker uses another connection for this request. On this connection it changes nothing.
            FromWorker::OpenStore { .. }
            | FromWorker::AskShards { .. }
            | FromWorker::AskCallIdentity => {}
            FromWorker::Finished { round } => {
                let trains =
                    matches!(worker.life, Life::Training { round: own, .. } if own == round);
                // An abort that arrives after the end of training does not revoke the result.
                if trains || matches!(worker.life, Life::Returning { .. }) {
                    worker.life = Life::Finished;
                    out.push(Command::AgentReport(AgentReport::Finished {
                        round,
                        workers: vec![process],
                    }));
                }
            }
        }
    }

    /// Answers a plan once all its members on this host are at `run()`.
    pub(super) fn answer_plan(&mut self, memory: &mut dyn Memory, out: &mut Vec<Command>) {
        let Some(plan) = &mut self.plan else { return };
        // The answer waits for every worker that still runs to the boundary of the previous round, planned or not. Its
        // commit there is the base, and no two rounds train at once (R11, R12).
        let number = plan.round;
        let trains =
            |worker: &Worker| matches!(worker.life, Life::Training { round, .. } if round < number);
        let busy = self.workers.values().any(trains) && !planted(Mutant::EarlyAnswer);
        if plan.answered || busy {
            return;
        }
        let mut members = Vec::with_capacity(plan.members.len());
        for process in &plan.members {
            match self.workers.get(process) {
                Some(worker) if worker.life == Life::Joined => {
                    members.push(worker.held(*process, memory));
                }
                _ => return,
            }
        }
        plan.answered = true;
        let others = self
            .workers
            .keys()
            .filter(|process| !plan.members.contains(process));
        let mut kept: Vec<_> = (others.chain(&self.kept))
            .map(|process| Kept::new(*process, &memory.commits(*process)))
            .filter(|kept| !kept.commits.is_empty())
            .collect();
        kept.extend(older_commits(&members, memory));
        let (round, free_port) = (plan.round, self.free_port);
        out.push(Command::AgentReport(AgentReport::Ready {
            round,
            members,
            kept,
            free_port,
        }));
    }

    /// Handles a report of the kernel that a process is dying. Peers on this host are aborted without a command of the
    /// driver.
    pub(super) fn died(&mut self, now: Time, process: Process, out: &mut Vec<Command>) {
        self.lose(now, process, false, out);
    }

    /// Handles the loss of a process: reports it, wakes its peers on this host, and ensures that it is dead.
    pub(super) fn lose(
        &mut self,
        now: Time,
        process: Process,
        silent: bool,
        out: &mut Vec<Command>,
    ) {
        let Some(worker) = self.workers.get_mut(&process) else {
            return;
        };
        let before = worker.life;
        if before == Life::Dying || (before == Life::Finished && !silent) {
            return;
        }
        let expected = worker.is_stopping() && !worker.fails_by_itself();
        worker.life = Life::Dying;
        worker.must_be_gone(now + self.setup.grace);
        if silent {
            worker.mark_killed(now);
            out.push(Command::Signal {
                process,
                signal: Signal::Kill,
            });
        }
        if !expected {
            worker.failed();
            out.push(Command::AgentReport(AgentReport::WorkerLost {
                process,
                silent,
            }));
        }
        if let Life::Training { round, .. } = before {
            let ending = self
                .workers
                .values()
                .any(|worker| worker.life == Life::Finished);
            if !ending {
                self.abort_members(now, round, out);
            }
        }
    }

    pub(super) fn exited(
        &mut self,
        process: Process,
        exit: Exit,
        tail: Vec<String>,
        memory: &mut dyn Memory,
        out: &mut Vec<Command>,
    ) {
        let Some(worker) = self.workers.remove(&process) else {
            return;
        };
        if memory.commits(process).is_empty() || planted(Mutant::DeadForgotten) {
            out.push(Command::Forget { process });
        } else {
            self.kept.insert(process);
        }
        // The driver counts these processes as lost with this agent. Their end is no failure of theirs.
        if self.by_itself {
            return;
        }
        if self.setup.groups {
            // Sent before the exit report, after which the next group may be started.
            let port = self.free_port;
            out.push(Command::AgentReport(AgentReport::FreePort { port }));
        }
        out.push(Command::AgentReport(AgentReport::Exited {
            process,
            exit,
            tail,
            stopped: worker.was_told() && !planted(Mutant::StopUntold),
        }));
    }
}

/// The older commits of members. The newest one may be void or incomplete, so that the round must begin from an older one. A
/// whole state is named once for each commit, and a shard for each member that holds it: members keep their shards. A process that keeps its state itself cannot go back to it.
fn older_commits(members: &[Held], memory: &dyn Memory) -> Vec<Kept> {
    let mut named = BTreeSet::new();
    let mut older = Vec::new();
    for held in members.iter().filter(|held| !held.empty) {
        let mut commits = memory.commits(held.process);
        commits.retain(|key| {
            let is_one_of_many = !key.shard.is_whole() && !planted(Mutant::OlderOfOneOnly);
            Some(key.commit) < held.commit && (is_one_of_many || named.insert(key.commit))
        });
        if !commits.is_empty() {
            older.push(Kept::new(held.process, &commits));
        }
    }
    older
}

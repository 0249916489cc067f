//! What the driver orders, what workers say, and how they end.

use std::collections::BTreeSet;

use elasticrun_protocol::{
    Boundary, FromWorker, Order, Process, Report, Round, ToAgent,
    control::{Exit, Kept, Start, StopReason},
};

use super::{
    Command, Machine, Memory, Plan, Signal,
    worker::{Life, Worker},
};
use crate::{Time, mutant::Mutant};

impl Machine {
    pub(super) fn ordered(
        &mut self,
        now: Time,
        order: ToAgent,
        memory: &mut dyn Memory,
        out: &mut Vec<Command>,
    ) {
        // An older driver is obeyed no more (R3), nor any when it ends by itself.
        if order.epoch < self.epoch || self.by_itself {
            return;
        }
        match order.order {
            Order::Setup(_) => {}
            Order::Beat { heard } => self.beat_answered(now, heard),
            Order::Spawn(spawn) => {
                let slot = spawn.process.local_rank;
                // One process a slot (R4): the driver waits for the last one to be reaped, so do we.
                let taken = self
                    .workers
                    .keys()
                    .any(|process| process.local_rank == slot);
                let newest = self.starts.get(&slot);
                let repeated = newest.is_some_and(|newest| *newest >= spawn.process.generation);
                let repeated = repeated && !self.planted.is(Mutant::RepeatedSpawn);
                if !taken && !repeated && !self.ending {
                    self.starts.insert(slot, spawn.process.generation);
                    self.workers.insert(spawn.process, Worker::starting());
                    out.push(Command::Spawn(spawn));
                }
            }
            Order::Stop { process, why } => self.stop(now, process, why, out),
            Order::Plan { round, members } => {
                if round > self.seen {
                    self.seen = round;
                    self.plan = Some(Plan {
                        round,
                        members,
                        answered: false,
                    });
                }
            }
            Order::Start(start) => self.start(*start, memory, out),
            Order::Hold { round } => self.hold(round, memory, out),
            Order::Leave { round, at } => self.leave(round, at, memory),
            Order::Withdraw { round } => {
                self.released = self.released.max(round);
                for process in self.members_of(round) {
                    memory.withdraw(process, round);
                }
            }
            Order::Abort { round } => self.abort(now, round, out),
            Order::Shutdown => self.end_all(now, out),
            Order::Kill => {
                self.end_all(now, out);
                let all = self.workers.keys();
                out.extend(all.map(|process| Command::Signal {
                    process: *process,
                    signal: Signal::Kill,
                }));
            }
        }
    }

    /// The driver has heard a beat. What it says now, however late it comes, holds from when that was sent.
    fn beat_answered(&mut self, now: Time, count: u64) {
        while let Some((_, sent)) = self.unanswered.pop_front_if(|(sent, _)| *sent <= count) {
            self.heard = sent;
        }
        if now.since(self.heard) < self.setup.heartbeat_timeout && !self.closed {
            // It was silent and is not gone: holds were taken back, all else is as it was.
            self.orphan_since = None;
        }
    }

    fn stop(&mut self, now: Time, process: Process, why: StopReason, out: &mut Vec<Command>) {
        let Some(worker) = self.workers.get_mut(&process) else {
            return;
        };
        if !worker.stop(now, why, self.setup.grace) {
            return;
        }
        let attached = worker.is_attached();
        if attached {
            out.push(Command::TellStop { process, why });
        }
        let by_word = matches!(why, StopReason::Removed | StopReason::DomainFailed);
        if !attached || !by_word {
            out.push(Command::Signal {
                process,
                signal: Signal::Terminate,
            });
        }
    }

    fn start(&mut self, start: Start, memory: &mut dyn Memory, out: &mut Vec<Command>) {
        let planned = self
            .plan
            .as_ref()
            .is_some_and(|plan| plan.round == start.round && plan.answered);
        if !planned {
            return;
        }
        self.plan = None;
        for member in &start.members {
            // One that died meanwhile stays dead.
            if let Some(worker) = self.workers.get_mut(&member.process)
                && worker.life == Life::Joined
            {
                worker.life = Life::Training {
                    round: start.round,
                    leaving: false,
                };
            }
        }
        // What is older than the base will not be needed again. What equals it stays for one more round.
        let base = start.base;
        let older = |process: &Process| memory.commits(*process).first().copied() < base;
        let forget: Vec<_> = self.kept.iter().copied().filter(older).collect();
        for process in forget {
            self.kept.remove(&process);
            out.push(Command::Forget { process });
        }
        out.push(Command::Start(Box::new(start)));
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
        out.push(Command::Report(Report::Counted { round, highest }));
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

    fn abort_members(&mut self, now: Time, round: Round, out: &mut Vec<Command>) {
        let members = self.members_of(round);
        for process in &members {
            if let Some(worker) = self.workers.get_mut(process) {
                worker.life = Life::Returning {
                    until: now + self.abort_timeout,
                };
            }
        }
        if !members.is_empty() {
            out.push(Command::Abort { round, members });
        }
    }

    /// Ends every round that trains here.
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

    pub(super) fn said(
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
            } => {
                let before = worker.life;
                if matches!(before, Life::Dying | Life::Finished) {
                    return;
                }
                worker.joined(left, data_port, commit);
                if worker.is_stopping() {
                    return;
                }
                match before {
                    Life::Training { round, leaving } if !(leaving && told) => {
                        out.push(Command::Report(Report::Broken { round, process }));
                    }
                    // The driver expects it; it answers with the next plan.
                    Life::Returning { .. } => {}
                    _ => self.waiting.push(process),
                }
            }
            FromWorker::Finished { round } => {
                let trains =
                    matches!(worker.life, Life::Training { round: own, .. } if own == round);
                // An abort that comes when all is done takes nothing back.
                if trains || matches!(worker.life, Life::Returning { .. }) {
                    worker.life = Life::Finished;
                    out.push(Command::Report(Report::Finished {
                        round,
                        workers: vec![process],
                    }));
                }
            }
        }
    }

    /// Answers a plan once all its members of this host are at `run()`.
    pub(super) fn answer_plan(&mut self, memory: &mut dyn Memory, out: &mut Vec<Command>) {
        let Some(plan) = &mut self.plan else { return };
        // Who still runs to the boundary of the round before is waited for, planned or not: what it commits
        // there is the base, and no two rounds train at once (R11, R12).
        let number = plan.round;
        let trains =
            |worker: &Worker| matches!(worker.life, Life::Training { round, .. } if round < number);
        let busy = self.workers.values().any(trains) && !self.planted.is(Mutant::EarlyAnswer);
        if plan.answered || busy {
            return;
        }
        let mut members = Vec::with_capacity(plan.members.len());
        for process in &plan.members {
            match self.workers.get(process) {
                Some(worker) if worker.life == Life::Joined => members.push(worker.held(*process)),
                _ => return,
            }
        }
        plan.answered = true;
        let others = self
            .workers
            .keys()
            .filter(|process| !plan.members.contains(process));
        let kept = (others.chain(&self.kept))
            .map(|process| Kept {
                process: *process,
                commits: memory.commits(*process),
            })
            .filter(|kept| !kept.commits.is_empty())
            .collect();
        let (round, free_port) = (plan.round, self.free_port);
        out.push(Command::Report(Report::Ready {
            round,
            members,
            kept,
            free_port,
        }));
    }

    /// The kernel says that a process is dying. Its peers here need not wait for the driver to say so.
    pub(super) fn died(&mut self, now: Time, process: Process, out: &mut Vec<Command>) {
        self.lose(now, process, false, out);
    }

    /// A process is lost: report it, wake its peers on this host, make sure that it is dead.
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
            out.push(Command::Signal {
                process,
                signal: Signal::Kill,
            });
        }
        if !expected {
            out.push(Command::Report(Report::Lost { process, silent }));
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
        if self.workers.remove(&process).is_none() {
            return;
        }
        if memory.commits(process).is_empty() {
            out.push(Command::Forget { process });
        } else {
            self.kept.insert(process);
        }
        // To the driver they are lost with this agent; that it stops them is no failure of theirs.
        if self.by_itself {
            return;
        }
        out.push(Command::Report(Report::Exited {
            process,
            exit,
            tail,
        }));
    }

    fn members_of(&self, round: Round) -> Vec<Process> {
        let trains = |worker: &Worker| matches!(worker.life, Life::Training { round: own, .. } if own == round);
        self.workers
            .iter()
            .filter(|(_, w)| trains(w))
            .map(|(process, _)| *process)
            .collect()
    }
}

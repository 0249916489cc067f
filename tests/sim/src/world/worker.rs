//! A training process: how it begins and attaches. The shipped [`Machine`] makes its decisions. This file and
//! `joining`, `beginning` and `training` model its shell and the user's script: time, memory, messages.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use elasticrun_core::{
    Time,
    agent::Event as AgentEvent,
    worker::{Action, Machine, RoundId, SetupStep},
};
use elasticrun_ledger::Position;
use elasticrun_protocol::{
    CommitId, FromWorker, Process, Rank, Round,
    control::{Exit, Member, Seat, Start},
};

use super::{
    Ev, World,
    asynchronous::Writing,
    memory::{Shared, State},
    schedule::{Act, Then},
};

/// The current activity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Imports.
    Starting,
    /// At `run()`.
    Joined,
    /// Computes, or does something else that ends by itself.
    Busy,
    /// Waits for its peers in this collective.
    Collective(u64),
    /// Waits at a boundary.
    Held,
    /// Returned from `run()`.
    Finished,
    /// Dead, not reaped yet.
    Dead,
}

/// A round that a worker is in.
#[derive(Clone, Debug)]
pub(crate) struct InRound {
    pub(super) start: Rc<Start>,
    pub(super) rank: Rank,
    /// The part of the state that the worker holds.
    pub(super) seat: Option<Seat>,
    pub(super) boundary: u64,
}

/// A training process.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) agent: u64,
    pub(crate) phase: Phase,
    /// Grows with every change of phase, so that planned actions of earlier phases are dropped.
    pub(super) token: u64,
    /// The token with which it wakes in `run()`, if a message has come that it has not seen yet.
    pub(super) wakes: Option<u64>,
    pub(super) suspended: bool,
    /// The agent has stopped the process.
    pub(super) frozen: bool,
    /// The process has no SDK and attaches to nothing.
    pub(super) script: bool,
    suspended_at: Option<Time>,
    /// The last round that the agent has aborted, and when.
    aborted: Option<(Round, Time)>,
    /// When the agent ordered the process to stop and left the end to it.
    pub(crate) removed: Option<Time>,
    pub(super) deferred: Vec<Ev>,
    pub(super) machine: Machine,
    /// The start order that the machine received last.
    pub(super) start: Option<(Rc<Start>, Member)>,
    /// The remaining steps before the training function.
    pub(super) setup: VecDeque<SetupStep>,
    /// Where it goes on once the commit is sealed whose barrier it waits at.
    pub(super) commits: Option<Then>,
    /// The commit that is copied while it trains.
    pub(super) writing: Option<Writing>,
    /// Its last shard has another layout than those of the others.
    pub(super) has_strayed: bool,
    /// The worker's part in the broadcast of the base.
    pub(super) transfer: Option<Action>,
    pub(crate) state: State,
    /// The position in the data, once the worker was in a round.
    pub(crate) position: Option<Position>,
    pub(crate) round: Option<InRound>,
    pub(super) attached: bool,
    pub(super) told_to_stop: bool,
    /// The round in which a collective beside the training was cut short.
    pub(super) cut_short: Option<Round>,
    pub(super) away: Duration,
    said_at: Time,
    pub(super) told_at: Time,
    pub(crate) end: Option<Exit>,
    /// The agent is gone.
    pub(super) orphan: bool,
}

impl Worker {
    pub(super) fn set_suspended(&mut self, at: Option<Time>) {
        (self.suspended, self.suspended_at) = (at.is_some(), at);
    }

    /// Since when the process sends no heartbeats although it should.
    pub(crate) fn silent_since(&self) -> Option<Time> {
        self.suspended_at.filter(|_| self.attached)
    }

    pub(super) fn set_aborted(&mut self, round: Round, at: Time) {
        self.aborted = Some((round, at));
    }

    /// Since when the process should come back from an aborted round.
    pub(crate) fn aborted_since(&self) -> Option<Time> {
        let round = self.round.as_ref()?.start.round;
        let back = matches!(self.phase, Phase::Joined | Phase::Finished);
        let (aborted, since) = self.aborted.filter(|_| !back)?;
        (aborted == round).then_some(since)
    }

    pub(crate) fn is_of(&self, agent: u64) -> bool {
        self.agent == agent && !self.orphan
    }

    /// Whether the process waits at a boundary.
    pub(crate) fn is_held(&self) -> bool {
        self.phase == Phase::Held && !self.suspended && !self.told_to_stop
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
    }

    /// The first commit of its round.
    pub(crate) fn first_commit(&self) -> Option<CommitId> {
        let start = &*self.round.as_ref()?.start;
        Some(RoundId::from(start).commit(0))
    }

    /// The round of the worker, and its base.
    pub(crate) fn base(&self) -> Option<(Round, Option<CommitId>)> {
        let start = &self.round.as_ref()?.start;
        Some((start.round, start.base))
    }
}

impl World {
    pub(super) fn begin_worker(&mut self, host: usize, process: Process) {
        let Some(agent) = self.hosts[host].agent.as_ref().map(|agent| agent.number) else {
            return;
        };
        self.hosts[host]
            .memories
            .of
            .insert(process, Shared::default());
        let worker = Worker {
            agent,
            phase: Phase::Starting,
            token: 0,
            wakes: None,
            suspended: false,
            frozen: false,
            script: self
                .plan
                .groups
                .as_ref()
                .is_some_and(|groups| !groups.attach),
            suspended_at: None,
            aborted: None,
            removed: None,
            deferred: Vec::new(),
            state: State::default(),
            machine: Machine::default(),
            start: None,
            setup: VecDeque::new(),
            transfer: None,
            commits: None,
            writing: None,
            has_strayed: false,
            position: None,
            round: None,
            attached: false,
            told_to_stop: false,
            cut_short: None,
            away: Duration::ZERO,
            said_at: Time::ZERO,
            told_at: Time::ZERO,
            end: None,
            orphan: false,
        };
        self.hosts[host].workers.insert(process, worker);
        let import = self.plan.import.as_micros() as u64;
        let import = self.rng.micros(import / 2, import);
        if self.plan.groups.is_some() {
            return self.begin_of_group(host, process, import);
        }
        let hangs = self.hosts[host].starts_hang.then_some(None);
        let act = hangs.or_else(|| self.pending.next_start(&mut self.rng));
        match act {
            Some(Some(exit)) => self.act_after(host, process, import / 2, Act::Exit(exit)),
            Some(None) => self.act_after(host, process, import / 2, Act::Attach),
            None => {
                self.act_after(host, process, import / 2, Act::Attach);
                self.act_after(host, process, import, Act::Join);
            }
        }
    }

    /// Starts a process of a job that begins with groups: a script, or a worker that attaches, perhaps late. A
    /// hang has an end here: before the first attach it may be a slow script.
    fn begin_of_group(&mut self, host: usize, process: Process, import: Duration) {
        let Some(groups) = self.plan.groups.clone() else {
            return;
        };
        let back = self.plan.heal.since(self.now) + Duration::from_secs(1);
        let act = self.pending.next_start(&mut self.rng);
        if let Some(Some(exit)) = act {
            return self.act_after(host, process, import / 2, Act::Exit(exit));
        }
        let hangs = act.is_some();
        if !groups.attach {
            let import = if hangs { import + back } else { import };
            return self.act_after(host, process, import, Act::Meet);
        }
        let late = match self.rng.percent(groups.late_percent) {
            true => self.rng.micros(0, groups.late.as_micros() as u64),
            false => Duration::ZERO,
        };
        let unattached = hangs && self.rng.percent(50);
        let late = if unattached { late + back } else { late };
        self.act_after(host, process, late + import / 2, Act::Attach);
        if unattached || !(hangs || self.hosts[host].starts_hang) {
            self.act_after(host, process, late + import, Act::Join);
        }
    }

    pub(super) fn worker(&mut self, host: usize, process: Process) -> Option<&mut Worker> {
        let worker = self.hosts[host].workers.get_mut(&process)?;
        (worker.phase != Phase::Dead).then_some(worker)
    }

    pub(super) fn attach(&mut self, host: usize, process: Process) {
        let now = self.now;
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.attached = true;
        let agent = worker.agent;
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.start_beating(now);
        }
        let event = AgentEvent::Attached { process };
        self.after(
            Duration::from_micros(50),
            Ev::Machine { host, agent, event },
        );
    }

    /// Sends a message to the agent, in order.
    pub(super) fn say(&mut self, host: usize, process: Process, message: FromWorker) {
        let at = self.now + self.rng.micros(10, 300);
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.said_at = worker.said_at.max(at);
        let (at, agent) = (worker.said_at, worker.agent);
        let event = AgentEvent::FromWorker { process, message };
        self.at(at, Ev::Machine { host, agent, event });
    }

    pub(super) fn take_away(&mut self, host: usize, process: Process) -> Duration {
        self.worker(host, process)
            .map_or(Duration::ZERO, |w| std::mem::take(&mut w.away))
    }
}

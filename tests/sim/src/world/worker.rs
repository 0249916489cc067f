//! A training process: joins, connects, is synced, trains, commits, leaves, and dies.
//!
//! The contract of the SDK: at a start it goes on from the base, which it holds or gets by the sync;
//! then who does not hold the base seals a commit with its id (or number 0 of the round if there is none).
//! A worker that comes back from an interrupted round may have reset callbacks: then rank 0 says whether its live state is
//! what the round begins with. It is a careless one: it offers what it has, whether or not it was ever synced, and what
//! is taken for the base is decided by the core's [`LiveState`].

use std::{rc::Rc, time::Duration};

use elasticrun_core::{Time, agent::Event as AgentEvent, data::Position, live_state::LiveState};
use elasticrun_protocol::{
    CommitId, FromWorker, Process, Rank, Round,
    control::{Exit, Member, Start},
};

use super::{
    Ev, World,
    memory::{Shared, State},
    turns::Act,
};

/// What a worker is at.
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

/// What its agent tells it.
#[derive(Clone, Debug)]
pub(crate) enum Tell {
    Start(Rc<Start>, Member),
    Stop,
}

/// A round that a worker is in.
#[derive(Clone, Debug)]
pub(crate) struct InRound {
    pub(super) start: Rc<Start>,
    pub(super) rank: Rank,
    pub(super) boundary: u64,
    pub(super) commits: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) agent: u64,
    pub(crate) phase: Phase,
    /// Grows with every turn it takes, so that what it meant to do before is forgotten.
    pub(super) token: u64,
    pub(super) suspended: bool,
    /// It is stopped by its agent.
    pub(super) frozen: bool,
    /// It knows nothing of its agent, and attaches to nothing.
    pub(super) script: bool,
    suspended_at: Option<Time>,
    /// Its agent has ended the round that it is in.
    aborted: Option<(Round, Time)>,
    /// Its agent has told it to stop, and left it to it to end.
    pub(crate) removed: Option<Time>,
    pub(super) deferred: Vec<Ev>,
    pub(crate) state: State,
    /// What that was made of.
    pub(super) live: LiveState,
    /// Its position in the data, once it was in a round.
    pub(super) position: Option<Position>,
    pub(crate) round: Option<InRound>,
    pub(super) last_round: Option<Round>,
    pub(super) attached: bool,
    pub(super) told_to_stop: bool,
    pub(super) away: Duration,
    said_at: Time,
    told_at: Time,
    pub(crate) end: Option<Exit>,
    /// Its agent is gone.
    pub(super) orphan: bool,
}

impl Worker {
    pub(super) fn set_suspended(&mut self, at: Option<Time>) {
        (self.suspended, self.suspended_at) = (at.is_some(), at);
    }

    /// Since when it does not beat, if it should.
    pub(crate) fn silent_since(&self) -> Option<Time> {
        self.suspended_at.filter(|_| self.attached)
    }

    pub(super) fn set_aborted(&mut self, round: Round, at: Time) {
        self.aborted = Some((round, at));
    }

    /// Since when it should come back from a round that was ended.
    pub(crate) fn aborted_since(&self) -> Option<Time> {
        let round = self.round.as_ref()?.start.round;
        let back = matches!(self.phase, Phase::Joined | Phase::Finished);
        let (aborted, since) = self.aborted.filter(|_| !back)?;
        (aborted == round).then_some(since)
    }

    pub(crate) fn is_of(&self, agent: u64) -> bool {
        self.agent == agent && !self.orphan
    }

    /// It waits at a boundary.
    pub(crate) fn is_held(&self) -> bool {
        self.phase == Phase::Held && !self.suspended && !self.told_to_stop
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
    }

    /// The round that it is in, and what that goes on from.
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
            live: LiveState::default(),
            position: None,
            round: None,
            last_round: None,
            attached: false,
            told_to_stop: false,
            away: Duration::ZERO,
            said_at: Time::ZERO,
            told_at: Time::ZERO,
            end: None,
            orphan: false,
        };
        self.hosts[host].workers.insert(process, worker);
        let import = self.plan.import.as_micros() as u64;
        let import = self.dice.micros(import / 2, import);
        if self.plan.groups.is_some() {
            return self.begin_of_group(host, process, import);
        }
        let hangs = self.hosts[host].starts_hang.then_some(None);
        let act = hangs.or_else(|| self.pending.next_start(&mut self.dice));
        match act {
            Some(Some(exit)) => self.act_after(host, process, import / 2, Act::Exit(exit)),
            Some(None) => self.act_after(host, process, import / 2, Act::Attach),
            None => {
                self.act_after(host, process, import / 2, Act::Attach);
                self.act_after(host, process, import, Act::Join);
            }
        }
    }

    /// Processes of a job that begins with groups: scripts, or workers that attach, perhaps late. A hang has an end here:
    /// as long as none has attached it may be a script that takes its time.
    fn begin_of_group(&mut self, host: usize, process: Process, import: Duration) {
        let Some(groups) = self.plan.groups.clone() else {
            return;
        };
        let back = self.plan.heal.since(self.now) + Duration::from_secs(1);
        let act = self.pending.next_start(&mut self.dice);
        if let Some(Some(exit)) = act {
            return self.act_after(host, process, import / 2, Act::Exit(exit));
        }
        let hangs = act.is_some();
        if !groups.attach {
            let import = if hangs { import + back } else { import };
            return self.act_after(host, process, import, Act::Meet);
        }
        let late = match self.dice.percent(groups.late_percent) {
            true => self.dice.micros(0, groups.late.as_micros() as u64),
            false => Duration::ZERO,
        };
        let unattached = hangs && self.dice.percent(50);
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

    /// Says something to its agent, in order.
    pub(super) fn say(&mut self, host: usize, process: Process, message: FromWorker) {
        let at = self.now + self.dice.micros(10, 300);
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.said_at = worker.said_at.max(at);
        let (at, agent) = (worker.said_at, worker.agent);
        let event = AgentEvent::Said { process, message };
        self.at(at, Ev::Machine { host, agent, event });
    }

    pub(super) fn join(&mut self, host: usize, process: Process, told: bool) {
        self.turn(host, process, Phase::Joined);
        let commit = self.hosts[host].newest(process);
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let (left, told_to_stop) = (worker.last_round, worker.told_to_stop);
        let data_port = 1000 + process.local_rank.0 as u16;
        let join = FromWorker::Join {
            left,
            told,
            data_port,
            commit,
            empty: false,
            unreachable: match told {
                true => Vec::new(),
                false => self.unreachable_from(host, left),
            },
        };
        self.say(host, process, join);
        // Who was told to stop says that it is back, and then ends.
        if told_to_stop {
            self.end_as_told(host, process);
        }
    }

    /// Hosts of a round that no data goes to or comes from, by their place in it.
    fn unreachable_from(&self, host: usize, round: Option<Round>) -> Vec<u32> {
        let Some(round) = round.and_then(|round| self.rounds.get(&round)) else {
            return Vec::new();
        };
        let mut hosts: Vec<_> = round.seats.iter().map(|seat| seat.host).collect();
        hosts.dedup();
        let cut = |at: usize| self.hosts[at].cut_data > 0;
        let lost = |at: &usize| *at != host && (cut(*at) || cut(host));
        let lost = hosts.iter().enumerate().filter(|(_, at)| lost(at));
        lost.map(|(place, _)| place as u32).collect()
    }

    /// Goes back to `run()`.
    pub(super) fn leave(&mut self, host: usize, process: Process, told: bool) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let Some(round) = worker.round.take() else {
            return;
        };
        worker.last_round = Some(round.start.round);
        let from = worker.phase;
        self.turn(host, process, Phase::Busy);
        self.seat_gone(round.start.round, round.rank, from);
        let wait = self.dice.micros(20, 5_000);
        let wait = wait + self.take_away(host, process);
        self.note(format_args!(
            "h{host} {process:?} leaves {:?}, told: {told}",
            round.start.round
        ));
        if told {
            self.act_after(host, process, wait, Act::Join);
        } else {
            self.join(host, process, false);
        }
    }

    pub(super) fn take_away(&mut self, host: usize, process: Process) -> Duration {
        self.worker(host, process)
            .map_or(Duration::ZERO, |w| std::mem::take(&mut w.away))
    }

    pub(super) fn tell(&mut self, host: usize, process: Process, tell: Tell) {
        let at = self.now + self.dice.micros(10, 1_000);
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.told_at = worker.told_at.max(at);
        let at = worker.told_at;
        self.at(
            at,
            Ev::Tell {
                host,
                process,
                tell,
            },
        );
    }

    pub(super) fn worker_told(&mut self, host: usize, process: Process, tell: Tell) {
        let again = || Ev::Tell {
            host,
            process,
            tell: tell.clone(),
        };
        if self.defers(host, process, again) {
            return;
        }
        match tell {
            Tell::Start(start, member) => self.enter(host, process, start, member),
            Tell::Stop => {
                let Some(worker) = self.worker(host, process) else {
                    return;
                };
                if worker.script {
                    // It has no ear for that.
                    return;
                }
                worker.told_to_stop = true;
                if worker.phase == Phase::Joined {
                    self.end_as_told(host, process);
                }
            }
        }
    }
}

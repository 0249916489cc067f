//! A training process: joins, connects, is synced, trains, commits, leaves, and dies.
//!
//! The contract of the SDK: at a start it goes on from the base, which it holds or gets by the sync;
//! then who does not hold the base seals a commit with its id (or number 0 of the round if there is none).

use std::{rc::Rc, time::Duration};

use elasticrun_core::{Time, agent::Event as AgentEvent};
use elasticrun_protocol::{
    CommitId, FromWorker, Process, Rank, Round,
    control::{Exit, Member, Start},
};

use super::{
    Ev, World,
    memory::{Commit, Shared, State, Verdict},
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

/// What a worker does next by itself.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Attach,
    Join,
    Reach(u64),
    Fetched,
    Done(u64),
    Seal { slot: usize, then: Then },
    ConnectTimeout,
    Exit(Exit),
}

/// Where it goes on once a commit is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Train,
    Boundary,
    Leave,
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
    boundary: u64,
    commits: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) agent: u64,
    pub(crate) phase: Phase,
    /// Grows with every turn it takes, so that what it meant to do before is forgotten.
    token: u64,
    pub(super) suspended: bool,
    deferred: Vec<Ev>,
    pub(crate) state: State,
    pub(crate) round: Option<InRound>,
    last_round: Option<Round>,
    attached: bool,
    pub(super) told_to_stop: bool,
    pub(super) away: Duration,
    said_at: Time,
    told_at: Time,
    pub(crate) end: Option<Exit>,
    /// Its agent is gone.
    pub(super) orphan: bool,
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
            deferred: Vec::new(),
            state: State::default(),
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
        let act = self.pending.next_start(&mut self.dice);
        match act {
            Some(Some(exit)) => self.act_after(host, process, import / 2, Act::Exit(exit)),
            Some(None) => self.act_after(host, process, import / 2, Act::Attach),
            None => {
                self.act_after(host, process, import / 2, Act::Attach);
                self.act_after(host, process, import, Act::Join);
            }
        }
    }

    pub(super) fn worker(&mut self, host: usize, process: Process) -> Option<&mut Worker> {
        let worker = self.hosts[host].workers.get_mut(&process)?;
        (worker.phase != Phase::Dead).then_some(worker)
    }

    /// It turns to something else.
    fn turn(&mut self, host: usize, process: Process, phase: Phase) {
        if let Some(worker) = self.worker(host, process) {
            worker.token += 1;
            worker.phase = phase;
        }
    }

    pub(super) fn act_after(&mut self, host: usize, process: Process, wait: Duration, act: Act) {
        let Some(token) = self.worker(host, process).map(|worker| worker.token) else {
            return;
        };
        self.after(
            wait,
            Ev::Worker {
                host,
                process,
                token,
                act,
            },
        );
    }

    /// A suspended process does nothing until it is continued.
    fn defers(&mut self, host: usize, process: Process, ev: impl FnOnce() -> Ev) -> bool {
        match self.worker(host, process) {
            Some(worker) if worker.suspended => {
                worker.deferred.push(ev());
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    pub(super) fn worker_acts(&mut self, host: usize, process: Process, token: u64, act: Act) {
        let again = || Ev::Worker {
            host,
            process,
            token,
            act: act.clone(),
        };
        if self.defers(host, process, again) {
            return;
        }
        if self
            .worker(host, process)
            .is_none_or(|worker| worker.token != token)
        {
            return;
        }
        match act {
            Act::Attach => self.attach(host, process),
            Act::Join => self.join(host, process, true),
            Act::Reach(index) => self.reach(host, process, index),
            Act::Fetched => self.fetched(host, process),
            Act::Done(index) => self.collective_done(host, process, index),
            Act::Seal { slot, then } => self.seal(host, process, slot, then),
            Act::ConnectTimeout => {
                let waits = self
                    .worker(host, process)
                    .is_some_and(|w| w.phase == Phase::Collective(0));
                if waits {
                    self.leave(host, process, false);
                }
            }
            Act::Exit(exit) => self.die(host, process, exit),
        }
    }

    fn attach(&mut self, host: usize, process: Process) {
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
    fn say(&mut self, host: usize, process: Process, message: FromWorker) {
        let at = self.now + self.dice.micros(10, 300);
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.said_at = worker.said_at.max(at);
        let (at, agent) = (worker.said_at, worker.agent);
        let event = AgentEvent::Said { process, message };
        self.at(at, Ev::Machine { host, agent, event });
    }

    fn join(&mut self, host: usize, process: Process, told: bool) {
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
        };
        self.say(host, process, join);
        // Who was told to stop says that it is back, and then ends.
        if told_to_stop {
            self.end_as_told(host, process);
        }
    }

    fn end_as_told(&mut self, host: usize, process: Process) {
        let wait = self.dice.micros(500, 20_000);
        let code = i32::from(self.dice.percent(50));
        self.act_after(host, process, wait, Act::Exit(Exit::Code(code)));
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

    fn take_away(&mut self, host: usize, process: Process) -> Duration {
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
                worker.told_to_stop = true;
                if worker.phase == Phase::Joined {
                    self.end_as_told(host, process);
                }
            }
        }
    }

    fn enter(&mut self, host: usize, process: Process, start: Rc<Start>, member: Member) {
        let round = start.round;
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        if worker.phase != Phase::Joined {
            let what = format!(
                "h{host} {process:?} is told to start {round:?} and is not at run() but {:?}",
                worker.phase
            );
            return self.violate("R3", what);
        }
        worker.round = Some(InRound {
            start,
            rank: member.place.rank,
            boundary: 0,
            commits: 0,
        });
        self.turn(host, process, Phase::Busy);
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.enter(round);
            if shared.aborted(round) {
                return self.leave(host, process, true);
            }
        }
        let wait = self.dice.micros(10, 2_000);
        self.act_after(host, process, wait, Act::Reach(0));
    }

    /// Comes to a collective.
    fn reach(&mut self, host: usize, process: Process, index: u64) {
        // With its agent its memory is gone, and soon it will be.
        if self
            .worker(host, process)
            .is_none_or(|worker| worker.orphan)
        {
            return;
        }
        if self.is_aborted(host, process) {
            return self.leave(host, process, true);
        }
        self.turn(host, process, Phase::Collective(index));
        if index == 0 {
            let wait = self.plan.connect_timeout;
            self.act_after(host, process, wait, Act::ConnectTimeout);
        }
        self.arrive(host, process, index);
    }

    pub(super) fn is_aborted(&self, host: usize, process: Process) -> bool {
        let round = self.hosts[host]
            .workers
            .get(&process)
            .and_then(|w| w.round.as_ref());
        let shared = self.hosts[host].memories.of.get(&process);
        let (Some(round), Some(shared)) = (round, shared) else {
            return false;
        };
        shared.aborted(round.start.round)
    }

    /// The agent rang: what a worker that waits sees then.
    pub(super) fn worker_wakes(&mut self, host: usize, process: Process) {
        if self.defers(host, process, || Ev::Wake { host, process }) {
            return;
        }
        match self.worker(host, process).map(|worker| worker.phase) {
            Some(Phase::Held) => self.judge(host, process),
            Some(Phase::Collective(_)) if self.is_aborted(host, process) => {
                self.leave(host, process, true);
            }
            _ => {}
        }
    }

    pub(super) fn peer_lost(&mut self, host: usize, process: Process, round: Round) {
        if self.defers(host, process, || Ev::PeerLost {
            host,
            process,
            round,
        }) {
            return;
        }
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let same = worker
            .round
            .as_ref()
            .is_some_and(|own| own.start.round == round);
        if same && matches!(worker.phase, Phase::Collective(_)) {
            let told = self.is_aborted(host, process);
            self.leave(host, process, told);
        }
    }

    /// A collective that this worker waited in is complete.
    fn collective_done(&mut self, host: usize, process: Process, index: u64) {
        self.turn(host, process, Phase::Busy);
        if self.is_aborted(host, process) {
            return self.leave(host, process, true);
        }
        let Some(round) = self.worker(host, process).and_then(|w| w.round.clone()) else {
            return;
        };
        match index {
            0 => self.begin_sync(host, process, &round),
            1 => self.synced(host, process, &round),
            _ => {
                let steps = self.plan.commit_every;
                let Some(worker) = self.worker(host, process) else {
                    return;
                };
                worker.state.advance(round.start.round);
                if worker.state.step.is_multiple_of(steps) {
                    self.commit(host, process, Then::Boundary);
                } else {
                    self.boundary(host, process);
                }
            }
        }
    }

    fn begin_sync(&mut self, host: usize, process: Process, round: &InRound) {
        let holds =
            round.start.base.is_none() || self.hosts[host].newest(process) == round.start.base;
        if round.rank != Rank(0) || holds {
            let wait = self.dice.micros(10, 500);
            return self.act_after(host, process, wait, Act::Reach(1));
        }
        let wait = self.dice.millis(1, 200);
        self.act_after(host, process, wait, Act::Fetched);
    }

    /// Rank 0 has asked the keeper for the base.
    fn fetched(&mut self, host: usize, process: Process) {
        if self.is_aborted(host, process) {
            return self.leave(host, process, true);
        }
        let Some(round) = self.worker(host, process).and_then(|w| w.round.clone()) else {
            return;
        };
        match self.ask_keeper(host, &round.start) {
            Some(state) => {
                if let Some(worker) = self.worker(host, process) {
                    worker.state = state;
                }
                self.set_base_state(round.start.round, state);
                self.reach(host, process, 1);
            }
            None => self.leave(host, process, false),
        }
    }

    fn ask_keeper(&self, host: usize, start: &Start) -> Option<State> {
        let keeper = start.keeper.as_ref()?;
        let at = self.host_index(&keeper.host)?;
        let reached =
            at == host || (self.hosts[at].cut_data == 0 && self.hosts[host].cut_data == 0);
        let there = self.hosts[at].agent.is_some() && reached;
        let shared = self.hosts[at]
            .memories
            .of
            .get(&keeper.process)
            .filter(|_| there)?;
        let commit = shared
            .complete()
            .into_iter()
            .find(|commit| Some(commit.id) == start.base)?;
        Some(commit.state)
    }

    /// What rank 0 brings to the sync when it holds the base already.
    pub(super) fn own_base(&self, host: usize, process: Process, start: &Start) -> Option<State> {
        let Some(base) = start.base else {
            return Some(State::default());
        };
        let shared = self.hosts[host].memories.of.get(&process)?;
        shared
            .complete()
            .into_iter()
            .find(|commit| commit.id == base)
            .map(|commit| commit.state)
    }

    fn synced(&mut self, host: usize, process: Process, round: &InRound) {
        let Some(state) = self.base_state(round.start.round) else {
            return self.violate(
                "R12",
                format!("{:?} is synced and nobody had the base", round.start.round),
            );
        };
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.state = state;
        if round.start.base.is_some() && self.hosts[host].newest(process) == round.start.base {
            self.train(host, process);
        } else {
            self.commit(host, process, Then::Train);
        }
    }

    /// Begins a commit.
    fn commit(&mut self, host: usize, process: Process, then: Then) {
        let most = self.plan.seal.as_micros() as u64;
        let wait = self.dice.micros(50, most);
        self.turn(host, process, Phase::Busy);
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            let slot = shared.begin();
            self.act_after(host, process, wait, Act::Seal { slot, then });
        }
    }

    fn seal(&mut self, host: usize, process: Process, slot: usize, then: Then) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let state = worker.state;
        let Some(round) = worker.round.as_mut() else {
            return;
        };
        let own = CommitId {
            epoch: round.start.epoch,
            round: round.start.round,
            count: if then == Then::Train {
                0
            } else {
                round.commits + 1
            },
        };
        round.commits = own.count;
        let base = round.start.base;
        let id = base.filter(|_| then == Then::Train).unwrap_or(own);
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.seal(slot, Commit { id, state });
            if then == Then::Train {
                shared.discard_newer(id);
            }
        }
        self.note(format_args!(
            "h{host} {process:?} seals {id:?} at step {}",
            state.step
        ));
        if let Err(what) = self.history.sealed(id, state) {
            return self.violate("R12", what);
        }
        match then {
            Then::Train => self.train(host, process),
            Then::Boundary => self.boundary(host, process),
            Then::Leave => self.leave(host, process, true),
        }
    }

    fn boundary(&mut self, host: usize, process: Process) {
        if let Some(round) = self.worker(host, process).and_then(|w| w.round.as_mut()) {
            round.boundary += 1;
            let (round, count) = (round.start.round, round.boundary);
            if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
                shared.boundary(round, count);
            }
        }
        self.judge(host, process);
    }

    fn judge(&mut self, host: usize, process: Process) {
        let Some(worker) = self.hosts[host].workers.get(&process) else {
            return;
        };
        let Some(round) = &worker.round else { return };
        let Some(shared) = self.hosts[host].memories.of.get(&process) else {
            return;
        };
        let (number, count) = (round.start.round, round.boundary);
        match shared.judge(number, count) {
            Verdict::Continue => self.train(host, process),
            Verdict::Wait => self.turn(host, process, Phase::Held),
            Verdict::Aborted => self.leave(host, process, true),
            Verdict::Leave => {
                let committed = worker.state.step.is_multiple_of(self.plan.commit_every);
                self.leaves_at(number, count);
                if committed {
                    self.leave(host, process, true);
                } else {
                    self.commit(host, process, Then::Leave);
                }
            }
        }
    }

    /// The next step, if there is one.
    fn train(&mut self, host: usize, process: Process) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let step = worker.state.step;
        let Some(round) = &worker.round else { return };
        let (round, boundary) = (round.start.round, round.boundary);
        if step >= self.plan.steps {
            return self.finish(host, process, round);
        }
        self.turn(host, process, Phase::Busy);
        let micros = self.plan.step.as_micros() as u64;
        let wait = self.dice.micros(micros / 2, micros * 3 / 2) + self.take_away(host, process);
        self.act_after(host, process, wait, Act::Reach(2 + boundary));
    }

    fn finish(&mut self, host: usize, process: Process, round: Round) {
        self.turn(host, process, Phase::Finished);
        self.say(host, process, FromWorker::Finished { round });
        let wait = self.dice.micros(1_000, 300_000);
        match self.pending.next_exit() {
            None => self.act_after(host, process, wait, Act::Exit(Exit::Code(0))),
            Some(true) => {
                // It hangs, but not for ever: user code that never returns is outside of what is promised.
                let back = self.plan.heal.since(self.now) + Duration::from_secs(1);
                self.act_after(host, process, back, Act::Exit(Exit::Code(0)));
            }
            Some(false) => self.act_after(host, process, wait, Act::Exit(Exit::Code(1))),
        }
    }

    /// A signal reaches a process.
    pub(super) fn worker_signalled(&mut self, host: usize, process: Process, term: bool) {
        if term
            && self.defers(host, process, || Ev::Kill {
                host,
                process,
                term,
            })
        {
            return;
        }
        // Some scripts do not end by SIGTERM.
        if term && self.dice.percent(20) {
            return;
        }
        if self.worker(host, process).is_some() {
            self.signal_ends(host, process);
        }
        self.die(host, process, Exit::Signal(if term { 15 } else { 9 }));
    }

    pub(super) fn die(&mut self, host: usize, process: Process, exit: Exit) {
        let now = self.now;
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let (attached, agent) = (worker.attached, worker.agent);
        let seat = worker
            .round
            .as_ref()
            .map(|round| (round.start.round, round.rank));
        let from = worker.phase;
        let lost = worker.orphan;
        worker.phase = Phase::Dead;
        worker.token += 1;
        worker.end = Some(exit.clone());
        self.note(format_args!("h{host} {process:?} dies: {exit}"));
        self.ends(host, process, &exit, lost);
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.stop_beating(now);
        }
        if let Some((round, rank)) = seat.filter(|_| from != Phase::Finished) {
            self.seat_gone(round, rank, from);
        }
        if attached && self.dice.percent(90) {
            let wait = self.dice.micros(50, 2_000);
            self.after(
                wait,
                Ev::Machine {
                    host,
                    agent,
                    event: AgentEvent::Died { process },
                },
            );
        }
        let wait = self.dice.micros(100, 200_000);
        self.after(wait, Ev::Reap { host, process });
    }

    pub(super) fn suspend(&mut self, host: usize, process: Process) {
        let now = self.now;
        if let Some(worker) = self.worker(host, process) {
            worker.suspended = true;
            if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
                shared.stop_beating(now);
            }
        }
    }

    pub(super) fn resume(&mut self, host: usize, process: Process) {
        let now = self.now;
        let Some(worker) = self.worker(host, process).filter(|worker| worker.suspended) else {
            return;
        };
        worker.suspended = false;
        let attached = worker.attached;
        let deferred = std::mem::take(&mut worker.deferred);
        self.note(format_args!("h{host} {process:?} is continued"));
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process)
            && attached
        {
            shared.start_beating(now);
        }
        for ev in deferred {
            self.at(now, ev);
        }
    }
}

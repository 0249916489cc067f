//! What a worker does in a round: connects, is synced, trains, commits, leaves at a boundary, finishes.

use std::{rc::Rc, time::Duration};

use elasticrun_protocol::{
    CommitId, FromWorker, Process, Rank, Round,
    control::{Exit, Member, Start},
};

use super::{
    Ev, World,
    memory::{Commit, State, Verdict},
    turns::{Act, Then},
    worker::{InRound, Phase},
};
use crate::invariants::{r7, r13};

impl World {
    pub(super) fn enter(
        &mut self,
        host: usize,
        process: Process,
        start: Rc<Start>,
        member: Member,
    ) {
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
    pub(super) fn reach(&mut self, host: usize, process: Process, index: u64) {
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
    pub(super) fn collective_done(&mut self, host: usize, process: Process, index: u64) {
        self.turn(host, process, Phase::Busy);
        // What a step computed is whole: its commit is made, and the boundary behind it says that the round is over.
        if index < 2 && self.is_aborted(host, process) {
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
            self.restore(host, process);
            let wait = self.dice.micros(10, 500);
            return self.act_after(host, process, wait, Act::Reach(1));
        }
        let wait = self.dice.millis(1, 200);
        self.act_after(host, process, wait, Act::Fetched);
    }

    /// Rank 0 has asked the keeper for the base.
    pub(super) fn fetched(&mut self, host: usize, process: Process) {
        if self.is_aborted(host, process) {
            return self.leave(host, process, true);
        }
        let Some(round) = self.worker(host, process).and_then(|w| w.round.clone()) else {
            return;
        };
        match self.ask_keeper(host, &round.start) {
            Some(state) => {
                // It is in its memory, and not yet in its live state.
                if let Some(id) = round.start.base
                    && let Some(shared) = self.hosts[host].memories.of.get_mut(&process)
                {
                    shared.keep(Commit {
                        id,
                        state: state.clone(),
                    });
                }
                self.set_base_state(round.start.round, state);
                self.restore(host, process);
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

    /// Whether this worker begins the round with its live state, being rank 0.
    pub(super) fn is_fresh(&self, host: usize, process: Process) -> bool {
        let worker = self.hosts[host].workers.get(&process);
        worker.is_some_and(|worker| {
            let base = worker.round.as_ref().map(|round| round.start.base);
            let returned = worker.last_round.is_some() && self.plan.callbacks;
            returned && base.is_some_and(|base| base.is_some() && worker.live.continues(base))
        })
    }

    /// Commits the live state of rank 0 as what the round begins with.
    pub(super) fn begin_afresh(&mut self, host: usize, process: Process) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let Some(start) = worker.round.as_ref().map(|round| round.start.clone()) else {
            return;
        };
        let id = CommitId {
            epoch: start.epoch,
            round: start.round,
            count: 0,
        };
        worker.live.became(id);
        let state = worker.state.clone();
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.keep(Commit {
                id,
                state: state.clone(),
            });
        }
        if let Err(what) = self.history.sealed(id, state.clone()) {
            return self.violate("R12", what);
        }
        if let Some(round) = self.rounds.get_mut(&start.round) {
            (round.state, round.fresh) = (Some(state), true);
        }
    }

    /// A worker that was in a round before restores what it committed last, as its reset callbacks expect it to. One that was
    /// never synced has nothing to go back to but what it began with.
    fn restore(&mut self, host: usize, process: Process) {
        let shared = self.hosts[host].memories.of.get(&process);
        let newest = shared.and_then(|shared| shared.complete().into_iter().next());
        let callbacks = self.plan.callbacks;
        if let Some(worker) = self.worker(host, process)
            && callbacks
            && worker.live.origin().is_some()
            && let Some(newest) = newest
        {
            worker.state = newest.state;
            worker.live.derived_from(newest.id);
        }
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
        self.share_out(host, process);
        let fresh = self.begins_afresh(round.start.round);
        let base = round.start.base.filter(|_| !fresh);
        if base.is_some() && self.hosts[host].newest(process) == base {
            if let (Some(base), Some(worker)) = (base, self.worker(host, process)) {
                worker.live.became(base);
            }
            r13::begins(self, host, process);
            self.train(host, process);
        } else {
            self.commit(host, process, Then::Train);
        }
    }

    /// Begins a commit.
    fn commit(&mut self, host: usize, process: Process, then: Then) {
        let most = self.plan.seal.as_micros() as u64;
        let mut wait = self.dice.micros(50, most);
        if then == Then::Boundary {
            // Whatever a script does between a step and its commit.
            wait += self.take_away(host, process);
        }
        self.turn(host, process, Phase::Busy);
        if then != Then::Train {
            self.agree(host, process);
        }
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            let slot = shared.begin();
            self.act_after(host, process, wait, Act::Seal { slot, then });
        }
    }

    pub(super) fn seal(&mut self, host: usize, process: Process, slot: usize, then: Then) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let state = worker.state.clone();
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
        let (number, base) = (round.start.round, round.start.base);
        let afresh = self.begins_afresh(number);
        let id = base
            .filter(|_| then == Then::Train && !afresh)
            .unwrap_or(own);
        if let Some(worker) = self.worker(host, process) {
            worker.live.derived_from(id);
        }
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            let state = state.clone();
            shared.seal(slot, Commit { id, state });
            if then == Then::Train {
                shared.discard_newer(id);
            }
        }
        self.note(format_args!(
            "h{host} {process:?} seals {id:?} at step {}",
            state.step
        ));
        if let Err(what) = r7::sealed(self, id, &state) {
            return self.violate("R7", what);
        }
        if let Err(what) = self.history.sealed(id, state) {
            return self.violate("R12", what);
        }
        match then {
            Then::Train => {
                r13::begins(self, host, process);
                self.train(host, process);
            }
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
        match shared.judge(self.now, number, count) {
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
        let act = match self.plan.raises_at {
            Some(at) if at <= step => Act::Exit(Exit::Code(1)),
            _ => Act::Reach(2 + boundary),
        };
        self.act_after(host, process, wait, act);
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
}

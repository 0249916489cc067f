//! The worker in a round that has begun: steps, commits, boundaries, the end.

use std::time::Duration;

use elasticrun_core::{
    hold::Verdict,
    mutant::{Mutant, planted},
    worker::Interrupt,
};
use elasticrun_protocol::{CommitId, FromWorker, Process, Round, control::Exit};

use super::{
    Ev, World,
    asynchronous::Onward,
    collective::{CONNECT, EXCHANGE, FIRST_STEP, TRANSFER, barrier, is_barrier, step},
    memory::Commit,
    schedule::{Act, Then},
    worker::Phase,
};
use crate::invariants::w4;

impl World {
    /// The worker reaches a collective.
    pub(super) fn reach(&mut self, host: usize, process: Process, index: u64) {
        // The memory of an orphan went with its agent, and the orphan ends soon.
        if self
            .worker(host, process)
            .is_none_or(|worker| worker.orphan)
        {
            return;
        }
        if self.is_aborted(host, process) {
            return self.collective_cut(host, process, index);
        }
        self.turn(host, process, Phase::Collective(index));
        if index == CONNECT {
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

    /// The agent has woken the worker, which checks what it waits for.
    pub(super) fn worker_wakes(&mut self, host: usize, process: Process) {
        if self.defers(host, process, || Ev::Wake { host, process }) {
            return;
        }
        match self.worker(host, process).map(|worker| worker.phase) {
            Some(Phase::Held) => self.judge(host, process),
            Some(Phase::Collective(index)) if self.is_aborted(host, process) => {
                self.collective_cut(host, process, index);
            }
            _ => {}
        }
    }

    /// A collective fails because its round is over.
    fn collective_cut(&mut self, host: usize, process: Process, index: u64) {
        if index < FIRST_STEP {
            self.sync_fails(host, process);
        }
        self.round_fails(host, process);
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
        if let Phase::Collective(index) = worker.phase
            && same
        {
            if index < FIRST_STEP {
                self.sync_fails(host, process);
            }
            self.peers_fail(host, process);
        } else if same && self.plan.careless {
            self.is_cut_short(host, process);
        }
    }

    /// A collective that this worker waited in is complete.
    pub(super) fn collective_done(&mut self, host: usize, process: Process, index: u64) {
        self.turn(host, process, Phase::Busy);
        // The result of a step is complete. The worker commits it, and the next boundary ends the round.
        if index < FIRST_STEP && self.is_aborted(host, process) {
            return self.collective_cut(host, process, index);
        }
        let Some(round) = self.worker(host, process).and_then(|w| w.round.clone()) else {
            return;
        };
        match index {
            CONNECT => self.connected(host, process),
            EXCHANGE => self.exchanged(host, process),
            TRANSFER => self.transferred(host, process),
            _ if is_barrier(index) => {
                let then = self.worker(host, process).and_then(|w| w.commits.take());
                self.commit_now(host, process, then.unwrap_or(Then::Boundary));
            }
            _ => {
                self.seal_if_copied(host, process);
                let steps = self.plan.commit_every;
                let Some(worker) = self.worker(host, process) else {
                    return;
                };
                worker.state.advance(round.start.round);
                if worker.state.step.is_multiple_of(steps) {
                    // A script may take time between a step and its commit.
                    let wait = self.rng.micros(0, 300) + self.take_away(host, process);
                    self.act_after(host, process, wait, Act::Commit);
                } else {
                    self.boundary(host, process);
                }
            }
        }
    }

    /// Begins a commit. That of a shard begins with a barrier: it is written over a part of the commit before the last. So the
    /// last one is sealed before the barrier.
    pub(super) fn commit(&mut self, host: usize, process: Process, then: Then) {
        // The shell makes this mistake.
        if self.is_copying(host, process) && !planted(Mutant::SealedBehindBarrier) {
            return self.settle(host, process, Onward::Commit(then));
        }
        if !self.plan.is_divided() || planted(Mutant::NoBarrierAtCommit) {
            return self.commit_now(host, process, then);
        }
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.commits = Some(then);
        let boundary = worker.round.as_ref().map_or(0, |round| round.boundary);
        if worker.has_strayed {
            return self.die(host, process, Exit::Code(1));
        }
        self.reach(host, process, barrier(boundary));
    }

    /// Makes a commit, if the machine grants it.
    fn commit_now(&mut self, host: usize, process: Process, then: Then) {
        // Only the mistake has left something to seal.
        self.seal_copy(host, process);
        let most = self.plan.seal.as_micros() as u64;
        let wait = self.rng.micros(50, most);
        self.turn(host, process, Phase::Busy);
        self.agree(host, process);
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let round = worker.round.as_ref().map(|round| round.start.round);
        let whole = worker.cut_short.is_none() || worker.cut_short != round;
        let stopped = worker.told_to_stop;
        let granted = worker.machine.commit();
        if granted.is_ok() != (whole && !stopped) {
            let what = format!(
                "h{host} {process:?} commits in {round:?}: {granted:?}, whole: {whole}, told to stop: {stopped}"
            );
            return self.violate("W4", what);
        }
        let Ok(id) = granted else {
            return self.leave(host, process);
        };
        if self.plan.asynchronous {
            return self.begin_copy(host, process, id, wait, then);
        }
        if let Some(slot) = self.begin_commit(host, process) {
            self.act_after(host, process, wait, Act::Seal { slot, id, then });
        }
    }

    /// A commit of the present state is written.
    pub(super) fn written(
        &mut self,
        host: usize,
        process: Process,
        slot: usize,
        id: CommitId,
        then: Then,
    ) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let state = worker.state.clone();
        let shard = self.shard_of(host, process, &state);
        let commit = Commit { id, shard, state };
        self.seal(host, process, slot, commit);
        match then {
            Then::Boundary => self.boundary(host, process),
            Then::Leave => self.leave_at_commit(host, process),
        }
    }

    /// Seals a commit that is written.
    pub(super) fn seal(&mut self, host: usize, process: Process, slot: usize, commit: Commit) {
        w4::seals(self, host, process, commit.id);
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.machine.committed(commit.id);
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.seal(slot, commit.clone());
        }
        self.sealed(host, process, &commit);
    }

    pub(super) fn leave_at_commit(&mut self, host: usize, process: Process) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let interrupt = worker.machine.leave_at_commit();
        debug_assert_eq!(interrupt, Interrupt::HostsUpdated);
        self.leave(host, process);
    }

    pub(super) fn boundary(&mut self, host: usize, process: Process) {
        let over = |worker: &mut super::worker::Worker| worker.machine.check().is_err();
        if self.worker(host, process).is_some_and(over) {
            return self.leave(host, process);
        }
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
        let verdict = shared.judge(self.now, number, count);
        if verdict == Verdict::Continue && shared.lease_is_over(self.now) {
            let what = format!("h{host} {process:?} trains on in {number:?} beyond its lease");
            return self.violate("R11", what);
        }
        match verdict {
            Verdict::Continue => self.train(host, process),
            Verdict::Wait | Verdict::AwaitLease => self.turn(host, process, Phase::Held),
            Verdict::Abort => {
                if let Some(worker) = self.worker(host, process) {
                    worker.machine.over();
                }
                self.leave(host, process);
            }
            Verdict::Leave => {
                let committed = worker.state.step.is_multiple_of(self.plan.commit_every);
                self.leaves_at(number, count);
                if committed {
                    self.settle(host, process, Onward::LeaveAtCommit);
                } else {
                    self.commit(host, process, Then::Leave);
                }
            }
        }
    }

    /// The next step, if there is one.
    pub(super) fn train(&mut self, host: usize, process: Process) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let done = worker.state.step;
        let Some(round) = &worker.round else { return };
        let (round, boundary) = (round.start.round, round.boundary);
        if done >= self.plan.steps {
            return self.settle(host, process, Onward::Finish(round));
        }
        self.turn(host, process, Phase::Busy);
        let micros = self.plan.step.as_micros() as u64;
        let wait = self.rng.micros(micros / 2, micros * 3 / 2) + self.take_away(host, process);
        let act = match self.plan.raises_at {
            Some(at) if at <= done => Act::Exit(Exit::Code(1)),
            _ => Act::Reach(step(boundary)),
        };
        self.act_after(host, process, wait, act);
    }

    pub(super) fn finish(&mut self, host: usize, process: Process, round: Round) {
        self.turn(host, process, Phase::Finished);
        self.say(host, process, FromWorker::Finished { round });
        let wait = self.rng.micros(1_000, 300_000);
        match self.pending.next_exit() {
            None => self.act_after(host, process, wait, Act::Exit(Exit::Code(0))),
            Some(true) => {
                // The worker hangs, but not for ever: user code that never returns is outside the guarantees.
                let back = self.plan.heal.since(self.now) + Duration::from_secs(1);
                self.act_after(host, process, back, Act::Exit(Exit::Code(0)));
            }
            Some(false) => self.act_after(host, process, wait, Act::Exit(Exit::Code(1))),
        }
    }
}

//! Commits of a divided state whose bytes are copied while training goes on, as by shipped workers that call
//! `commit(async_=True)`.
//!
//! Such a commit has the state of the moment at which it begins. It is sealed when a step is done after the copy. At the latest it
//! is sealed before the barrier of the next commit, before the worker leaves its round, and before the worker finishes. A
//! worker that dies earlier has no such commit, and neither has the job. The commit before is left then: to begin the next
//! commit over it, a worker must have seen in the barrier that all members have sealed this one (R15).
//!
//! So the job loses one commit at most, as it does when a worker dies that writes its commit at once. The steps since that
//! commit are lost with it.

use std::time::Duration;

use elasticrun_core::{
    Time,
    mutant::{Mutant, planted},
};
use elasticrun_protocol::{CommitId, Process, Round};

use super::{
    World,
    memory::Commit,
    schedule::{Act, Then},
    worker::Phase,
};

/// A commit that is being copied.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    slot: usize,
    commit: Commit,
    /// When the copy is done.
    copied: Time,
}

/// Where a worker goes on once it has sealed what it copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onward {
    /// It begins its next commit.
    Commit(Then),
    /// It leaves at the common boundary.
    LeaveAtCommit,
    /// It leaves a round that is over.
    Leave,
    /// Its training is done.
    Finish(Round),
}

impl World {
    /// Begins a commit with the state of this moment. The copy takes this long, and training goes on.
    pub(super) fn begin_copy(
        &mut self,
        host: usize,
        process: Process,
        id: CommitId,
        takes: Duration,
        then: Then,
    ) {
        let Some(slot) = self.begin_commit(host, process) else {
            return;
        };
        let Some(state) = self.worker(host, process).map(|w| w.state.clone()) else {
            return;
        };
        let shard = self.shard_of(host, process, &state);
        let (step, copied) = (state.step, self.now + takes);
        self.note(format_args!(
            "h{host} {process:?} copies {id:?} of step {step} until {copied:?}"
        ));
        if let Some(worker) = self.worker(host, process) {
            let commit = Commit { id, shard, state };
            worker.writing = Some(Writing {
                slot,
                commit,
                copied,
            });
        }
        match then {
            Then::Boundary => self.boundary(host, process),
            Then::Leave => self.settle(host, process, Onward::LeaveAtCommit),
        }
    }

    /// Whether a worker has a commit that is not sealed yet.
    pub(super) fn is_copying(&self, host: usize, process: Process) -> bool {
        let worker = self.hosts[host].workers.get(&process);
        worker.is_some_and(|worker| worker.writing.is_some())
    }

    /// A worker waits until its commit is copied and seals it. Then it goes on.
    pub(super) fn settle(&mut self, host: usize, process: Process, onward: Onward) {
        let now = self.now;
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let copied = worker.writing.as_ref().map_or(now, |w| w.copied);
        if copied <= now {
            return self.settled(host, process, onward);
        }
        self.turn(host, process, Phase::Busy);
        self.act_after(host, process, copied.since(now), Act::Settled(onward));
    }

    /// The commit of a worker is copied, if it had one.
    pub(super) fn settled(&mut self, host: usize, process: Process, onward: Onward) {
        self.seal_copy(host, process);
        match onward {
            Onward::Commit(then) => self.commit(host, process, then),
            Onward::LeaveAtCommit => self.leave_at_commit(host, process),
            Onward::Leave => self.leave(host, process),
            Onward::Finish(round) => self.finish(host, process, round),
        }
    }

    /// The optimizer is about to change the state. A commit that is copied by now is sealed.
    pub(super) fn seal_if_copied(&mut self, host: usize, process: Process) {
        let now = self.now;
        let worker = self.hosts[host].workers.get(&process);
        let writing = worker.and_then(|worker| worker.writing.as_ref());
        if writing.is_some_and(|writing| writing.copied <= now) {
            self.seal_copy(host, process);
        }
    }

    /// Seals the commit that a worker has copied.
    pub(super) fn seal_copy(&mut self, host: usize, process: Process) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let Some(Writing {
            slot, mut commit, ..
        }) = worker.writing.take()
        else {
            return;
        };
        // The shell makes this mistake.
        if planted(Mutant::CopiedTooLate) {
            commit.state = worker.state.clone();
        }
        self.seal(host, process, slot, commit);
    }

    /// A round is over for a worker that still copies a commit. Its peers can notice that now, and it leaves once the commit is
    /// sealed. Now and then the copy fails, and the commit is void.
    pub(super) fn leave_copying(&mut self, host: usize, process: Process) {
        let fails = !self.healed && self.copy_rng.percent(20);
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let from = worker.phase;
        let seat = worker.round.as_ref();
        let seat = seat.map(|round| (round.start.round, round.rank));
        if fails && let Some(writing) = worker.writing.take() {
            let id = writing.commit.id;
            self.note(format_args!("h{host} {process:?} cannot copy {id:?}"));
        }
        self.turn(host, process, Phase::Busy);
        if let Some((round, rank)) = seat {
            self.seat_gone(round, rank, from);
        }
        self.settle(host, process, Onward::Leave);
    }
}

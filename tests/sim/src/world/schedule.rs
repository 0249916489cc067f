//! The schedule of a worker: it does one thing and plans the next, and a change of phase drops the plan.

use std::time::Duration;

use elasticrun_core::worker::Action;
use elasticrun_protocol::{CommitId, Process, control::Exit};

use super::{Ev, World, asynchronous::Onward, worker::Phase};

/// The next action of a worker.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Attach,
    Meet,
    Join,
    Reach(u64),
    /// Rank 0 has requested the base for its reset callbacks.
    BaseAsked(CommitId),
    /// A worker has looked for the shards of the base.
    ShardsFound(CommitId),
    /// A worker has written its shard of the first commit of its round.
    FirstWritten {
        slot: usize,
        id: CommitId,
    },
    /// An action of the start of a round has taken its time.
    Synced(Action),
    Done(u64),
    /// The script calls commit().
    Commit,
    Seal {
        slot: usize,
        id: CommitId,
        then: Then,
    },
    /// The commit of a worker is copied.
    Settled(Onward),
    ConnectTimeout,
    Exit(Exit),
}

/// Where the worker goes on once a commit is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Boundary,
    Leave,
}

impl World {
    /// Changes the phase of a worker and drops its planned action.
    pub(super) fn turn(&mut self, host: usize, process: Process, phase: Phase) {
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

    /// Defers an event of a suspended process until it is continued. Gives whether the event must not happen now.
    pub(super) fn defers(
        &mut self,
        host: usize,
        process: Process,
        ev: impl FnOnce() -> Ev,
    ) -> bool {
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
            Act::Meet => self.meet(host, process),
            Act::Join => self.join(host, process),
            Act::Reach(index) => self.reach(host, process, index),
            Act::BaseAsked(id) => self.base_asked(host, process, id),
            Act::ShardsFound(id) => self.shards_found(host, process, id),
            Act::FirstWritten { slot, id } => self.first_written(host, process, slot, id),
            Act::Synced(action) => self.performed(host, process, action),
            Act::Done(index) => self.collective_done(host, process, index),
            Act::Commit => self.commit(host, process, Then::Boundary),
            Act::Seal { slot, id, then } => self.written(host, process, slot, id, then),
            Act::Settled(onward) => self.settled(host, process, onward),
            Act::ConnectTimeout => {
                let waits = self
                    .worker(host, process)
                    .is_some_and(|w| w.phase == Phase::Collective(0));
                if waits {
                    self.peers_fail(host, process);
                }
            }
            Act::Exit(exit) => self.die(host, process, exit),
        }
    }
}

//! One worker process from the view of its agent.

use std::time::Duration;

use elasticrun_protocol::{
    CommitId, Process, Round,
    control::{Held, StopReason, Waiting},
};

use super::{Memory, Signal};
use crate::{
    Time,
    mutant::{Mutant, planted},
    time::earliest,
};

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Has not reached `run()` yet.
    Starting,
    /// Waits at `run()`.
    Joined,
    /// Is a member of a round.
    Training {
        round: Round,
        /// The boundary at which it leaves is set.
        leaving: bool,
    },
    /// Its round is over and it is expected at `run()`.
    Returning {
        /// The round that is over.
        round: Round,
        /// When it is lost.
        until: Time,
    },
    /// Has returned from `run()`.
    Finished,
    /// Is dead or being killed, and not yet reaped.
    Dying,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stopping {
    /// When the next signal is due.
    due: Time,
    next: Signal,
}

/// A worker process.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) life: Life,
    data_port: u16,
    /// The round that it left when it joined last.
    left: Option<Round>,
    commit: Option<CommitId>,
    empty: bool,
    /// The last count of heartbeats and when the count changed; `None` until it attaches.
    beat: Option<(u64, Time)>,
    stopping: Option<Stopping>,
    /// The driver has asked for its end, and it did not fail by itself before it could act on that.
    told: bool,
    /// When it was first sent SIGKILL.
    killed: Option<Time>,
}

impl Worker {
    pub(super) fn starting() -> Self {
        Self {
            life: Life::Starting,
            data_port: 0,
            left: None,
            commit: None,
            empty: false,
            beat: None,
            stopping: None,
            told: false,
            killed: None,
        }
    }

    pub(super) fn attached(&mut self, now: Time) {
        self.beat.get_or_insert((0, now));
    }

    pub(super) fn joined(
        &mut self,
        left: Option<Round>,
        data_port: u16,
        commit: Option<CommitId>,
        empty: bool,
    ) {
        self.life = Life::Joined;
        self.left = left;
        self.data_port = data_port;
        (self.commit, self.empty) = (commit, empty);
    }

    pub(super) fn is_attached(&self) -> bool {
        self.beat.is_some()
    }

    /// Whether the process has not attached yet, so that it reads no lease. A script without the SDK never attaches.
    pub(super) fn ignores_lease(&self) -> bool {
        self.life == Life::Starting && !self.is_attached()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    pub(super) fn waiting(&self, process: Process) -> Waiting {
        Waiting {
            process,
            left: self.left,
            data_port: self.data_port,
        }
    }

    /// What the driver is told of a member. The worker has named its newest commit, and the memory knows what it is of.
    pub(super) fn held(&self, process: Process, memory: &dyn Memory) -> Held {
        let commits = memory.commits(process).into_iter();
        let newest = commits.filter(|key| Some(key.commit) == self.commit);
        Held {
            process,
            commit: self.commit,
            shard: newest.map(|key| key.shard).next().unwrap_or_default(),
            empty: self.empty,
            data_port: self.data_port,
        }
    }

    /// Whether the worker has sent no heartbeat for `limit`. A worker that has not attached sends none.
    pub(super) fn is_silent(&mut self, now: Time, beats: u64, limit: Duration) -> bool {
        let Some((last, since)) = &mut self.beat else {
            return false;
        };
        if beats != *last {
            (*last, *since) = (beats, now);
        }
        self.life != Life::Dying && *since + limit <= now
    }

    /// Extends the silence limit by a time in which the agent did not run.
    pub(super) fn excuse(&mut self, time: Duration) {
        if let Some((_, since)) = &mut self.beat {
            *since = *since + time;
        }
    }

    /// The worker ended outside of a round. If it was told to stop, it has acted on that, though it had no time to report
    /// that it left its round.
    pub(super) fn has_obeyed(&mut self) {
        if self.stopping.is_some() {
            self.life = Life::Joined;
        }
    }

    /// Whether an end now is the worker's own failure: it is in a round, so it has not acted on the stop message, and
    /// no signal was sent to it.
    pub(super) fn fails_by_itself(&self) -> bool {
        let in_a_round = matches!(self.life, Life::Training { .. } | Life::Returning { .. });
        let asked = |stopping: &Stopping| stopping.next == Signal::Terminate;
        in_a_round && self.stopping.as_ref().is_none_or(asked)
    }

    /// Begins to stop the worker. Returns `false` if it is stopping or dying already. A removed worker may end by
    /// itself before any signal. So may a worker whose failure domain failed: its exit shows whether it was failing as
    /// well.
    pub(super) fn stop(&mut self, now: Time, why: StopReason, grace: Duration) -> bool {
        if self.stopping.is_some() || self.life == Life::Dying {
            return false;
        }
        let next = match why {
            StopReason::Removed | StopReason::DomainFailed if self.is_attached() => {
                Signal::Terminate
            }
            _ => Signal::Kill,
        };
        self.told = true;
        let alone = next == Signal::Terminate && planted(Mutant::RemovedLeftAlone);
        self.stopping = Some(Stopping {
            due: if alone { Time::NEVER } else { now + grace },
            next,
        });
        true
    }

    /// Whether its end is the one that the driver has asked for.
    pub(super) fn was_told(&self) -> bool {
        self.told
    }

    /// It failed by itself, whatever it was told.
    pub(super) fn failed(&mut self) {
        self.told = false;
    }

    /// Ends the worker at once. Returns `false` if SIGKILL was already the last step.
    pub(super) fn kill(&mut self, now: Time) -> bool {
        self.mark_killed(now);
        let last = Stopping {
            due: Time::NEVER,
            next: Signal::Kill,
        };
        self.stopping.replace(last) != Some(last)
    }

    /// Records that SIGKILL is sent.
    pub(super) fn mark_killed(&mut self, now: Time) {
        self.killed.get_or_insert(now);
    }

    /// When SIGKILL was first sent.
    pub(super) fn killed(&self) -> Option<Time> {
        self.killed
    }

    /// The process is dying. It is killed if it still exists at `due`.
    pub(super) fn must_be_gone(&mut self, due: Time) {
        let next = Signal::Kill;
        self.stopping.get_or_insert(Stopping { due, next });
    }

    /// The signal that is due now, if any. SIGKILL is the last one.
    pub(super) fn due_signal(&mut self, now: Time, grace: Duration) -> Option<Signal> {
        let stopping = self.stopping.filter(|stopping| stopping.due <= now)?;
        self.stopping = Some(Stopping {
            due: match stopping.next {
                Signal::Terminate => now + grace,
                _ => Time::NEVER,
            },
            next: Signal::Kill,
        });
        if stopping.next == Signal::Kill {
            self.mark_killed(now);
        }
        Some(stopping.next)
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let returning = match self.life {
            Life::Returning { until, .. } => Some(until),
            _ => None,
        };
        let signal = self.stopping.map(|stopping| stopping.due);
        earliest([returning, signal.filter(|due| *due < Time::NEVER)])
    }
}

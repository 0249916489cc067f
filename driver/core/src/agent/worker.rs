//! One worker process as its agent sees it.

use std::time::Duration;

use elasticrun_protocol::{
    CommitId, Process, Round,
    control::{Held, StopReason, Waiting},
};

use super::Signal;
use crate::{
    Time,
    mutant::{Mutant, planted},
    time::earliest,
};

/// Where a worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Not yet at `run()`.
    Starting,
    /// At `run()`.
    Joined,
    /// In a round.
    Training {
        /// Which.
        round: Round,
        /// It was told at which boundary to leave.
        leaving: bool,
    },
    /// Its round is over and it is expected at `run()`.
    Returning {
        /// Till then.
        until: Time,
    },
    /// It returned from `run()`.
    Finished,
    /// It is dead or being killed; to be reaped.
    Dying,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stopping {
    /// When the next signal is due.
    due: Time,
    next: Signal,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) life: Life,
    data_port: u16,
    /// The round it came from when it joined last.
    left: Option<Round>,
    commit: Option<CommitId>,
    empty: bool,
    /// Last count of beats and when it changed; none before it attached.
    beat: Option<(u64, Time)>,
    stopping: Option<Stopping>,
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

    /// It has no page that it would look at: it has not come to the SDK yet, and perhaps never will.
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

    pub(super) fn held(&self, process: Process) -> Held {
        Held {
            process,
            commit: self.commit,
            empty: self.empty,
            data_port: self.data_port,
        }
    }

    /// Whether it has not beaten for so long. One that never attached does not beat.
    pub(super) fn is_silent(&mut self, now: Time, beats: u64, limit: Duration) -> bool {
        let Some((last, since)) = &mut self.beat else {
            return false;
        };
        if beats != *last {
            (*last, *since) = (beats, now);
        }
        self.life != Life::Dying && *since + limit <= now
    }

    /// Its agent did not run for so long, so a silence of that time says nothing.
    pub(super) fn excuse(&mut self, time: Duration) {
        if let Some((_, since)) = &mut self.beat {
            *since = *since + time;
        }
    }

    /// It is told to stop and has not come back to hear that, nor has it been sent a signal: if it ends now it
    /// does so by itself.
    pub(super) fn fails_by_itself(&self) -> bool {
        let in_a_round = matches!(self.life, Life::Training { .. } | Life::Returning { .. });
        let asked = |stopping: &Stopping| stopping.next == Signal::Terminate;
        in_a_round && self.stopping.as_ref().is_none_or(asked)
    }

    /// Begins to stop it; gives whether that is news. Who is merely removed may end by itself first, and who
    /// is told since a peer failed shows by its end whether it was failing as well.
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
        let alone = next == Signal::Terminate && planted(Mutant::RemovedLeftAlone);
        self.stopping = Some(Stopping {
            due: if alone { Time::NEVER } else { now + grace },
            next,
        });
        true
    }

    /// Ends it at once; gives whether it was not sent the last signal before.
    pub(super) fn kill(&mut self, now: Time) -> bool {
        self.mark_killed(now);
        let last = Stopping {
            due: Time::NEVER,
            next: Signal::Kill,
        };
        self.stopping.replace(last) != Some(last)
    }

    /// It is sent SIGKILL.
    pub(super) fn mark_killed(&mut self, now: Time) {
        self.killed.get_or_insert(now);
    }

    /// When it was first sent SIGKILL.
    pub(super) fn killed(&self) -> Option<Time> {
        self.killed
    }

    /// It is dying: if it is still there by then it is killed.
    pub(super) fn must_be_gone(&mut self, due: Time) {
        let next = Signal::Kill;
        self.stopping.get_or_insert(Stopping { due, next });
    }

    /// The signal that is due, if it has not ended by then. SIGKILL is the last one.
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
            Life::Returning { until } => Some(until),
            _ => None,
        };
        let signal = self.stopping.map(|stopping| stopping.due);
        earliest([returning, signal.filter(|due| *due < Time::NEVER)])
    }
}

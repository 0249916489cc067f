//! The thread that says when to poll, and that does not wait for ever.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::Snapshot;

use super::{Random, Sink, Update, caller::Poll, schedule::Schedule};
use crate::{Failure, FailureKind};

/// A plugin that keeps its deadline by itself (it kills a program, say) is back a little after it.
const GRACE: Duration = Duration::from_millis(500);

/// What the supervisor waits for.
pub(super) enum Signal {
    /// The caller is back.
    Answer(Result<Snapshot, Failure>),
    /// Nobody wants updates any more.
    Stop,
}

/// See the module.
pub(super) struct Supervisor {
    pub(super) source: String,
    pub(super) deadline: Duration,
    pub(super) schedule: Schedule,
    pub(super) random: Random,
    pub(super) sink: Sink,
    pub(super) calls: Sender<Poll>,
    pub(super) inbox: Receiver<Signal>,
}

/// Nobody wants updates any more.
struct Stopped;

impl Supervisor {
    pub(super) fn run(mut self) {
        while self.turn().is_ok() {}
    }

    /// One poll and the pause after it.
    fn turn(&mut self) -> Result<(), Stopped> {
        let poll = Poll {
            deadline: self.deadline,
        };
        self.calls.send(poll).map_err(|_| Stopped)?;
        let result = match self.answer(Some(self.deadline + GRACE))? {
            Some(result) => result,
            None => {
                let message = format!("the plugin is not back after {:?}", self.deadline);
                self.push(Err(Failure::new(FailureKind::Hung, message)));
                self.answer(None)?.ok_or(Stopped)?
            }
        };
        let pause = self.schedule.after(&result, &mut self.random);
        self.push(result);
        self.pause(pause)
    }

    fn push(&mut self, result: Result<Snapshot, Failure>) {
        let source = self.source.clone();
        (self.sink)(Update {
            source,
            result,
            at: Instant::now(),
        });
    }

    /// What the caller says; `None` if it says nothing in time.
    fn answer(
        &self,
        limit: Option<Duration>,
    ) -> Result<Option<Result<Snapshot, Failure>>, Stopped> {
        let signal = match limit {
            Some(limit) => self.inbox.recv_timeout(limit),
            None => self
                .inbox
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
        };
        match signal {
            Ok(Signal::Answer(result)) => Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => Err(Stopped),
        }
    }

    fn pause(&self, time: Duration) -> Result<(), Stopped> {
        match self.inbox.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            // No answer is due, so it is the end.
            _ => Err(Stopped),
        }
    }
}

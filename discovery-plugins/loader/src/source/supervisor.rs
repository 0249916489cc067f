//! The thread that says when to poll, and that does not wait for ever.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{Command, Snapshot};

use super::{
    Random, Sink, Update,
    caller::Call,
    schedule::{SHORTEST, Schedule},
};
use crate::{Failure, FailureKind, process::GRACE};

/// What the supervisor waits for.
pub(super) enum Signal {
    /// The caller is back from a poll.
    Answer(Result<Snapshot, Failure>),
    /// The caller is back from a command.
    Told(Result<(), Failure>),
    /// The plugin has something new, or its process is gone.
    Changed,
    /// Somebody has something to tell the plugin.
    Command(Command),
    /// Nobody wants updates any more, but the plugin is to hear what it was not told yet. The sender is dropped then.
    Finish(Sender<Infallible>),
    /// Nobody wants updates any more.
    Stop,
}

/// See the module.
pub(super) struct Supervisor {
    pub(super) source: String,
    pub(super) deadline: Duration,
    /// A call of the plugin may not come back. (One that has a process of its own always does.)
    pub(super) may_hang: bool,
    pub(super) schedule: Schedule,
    pub(super) random: Random,
    pub(super) sink: Sink,
    pub(super) calls: Sender<Call>,
    pub(super) inbox: Receiver<Signal>,
    /// Commands that came while the plugin was busy.
    pub(super) untold: VecDeque<Command>,
    /// It is being told something.
    pub(super) telling: bool,
    /// Who waits for the end; see [`Signal::Finish`].
    pub(super) finishing: Option<Sender<Infallible>>,
    /// The plugin said that it has something new since it was last asked.
    pub(super) nudged: bool,
    /// A nudge is in the inbox: one is enough, however often a plugin says it.
    pub(super) nudges: Arc<AtomicBool>,
}

/// Nobody wants updates any more.
struct Stopped;

impl Supervisor {
    pub(super) fn run(mut self) {
        while self.turn().is_ok() {}
    }

    /// One poll and the pause after it.
    fn turn(&mut self) -> Result<(), Stopped> {
        self.nudged = false;
        self.calls
            .send(Call::Poll(self.deadline))
            .map_err(|_| Stopped)?;
        let hung = |failure| Signal::Answer(Err(failure));
        let result = match self.back(hung)? {
            Signal::Answer(result) => result,
            _ => return Err(Stopped),
        };
        let failed = result.is_err();
        let pause = self.schedule.after(&result, &mut self.random);
        self.push(result);
        self.pause(pause, failed)
    }

    fn push(&mut self, result: Result<Snapshot, Failure>) {
        let source = self.source.clone();
        (self.sink)(Update {
            source,
            result,
            at: Instant::now(),
        });
    }

    /// What the caller comes back with. If it does not in time that is said once, and then waited for.
    fn back(&mut self, hung: impl FnOnce(Failure) -> Signal) -> Result<Signal, Stopped> {
        let limit = self.deadline + GRACE;
        let mut limit = self.may_hang.then(|| Instant::now() + limit);
        let mut hung = Some(hung);
        loop {
            let signal = match limit {
                Some(limit) => self
                    .inbox
                    .recv_timeout(limit.saturating_duration_since(Instant::now())),
                None => self.inbox.recv().map_err(RecvTimeoutError::from),
            };
            match signal {
                Ok(Signal::Changed) => self.hear_nudge(),
                Ok(Signal::Command(command)) => self.untold.push_back(command),
                Ok(Signal::Finish(done)) => {
                    self.finishing = Some(done);
                    if !self.telling && self.untold.is_empty() {
                        return Err(Stopped);
                    }
                }
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return Err(Stopped),
                Ok(back) => return Ok(back),
                Err(RecvTimeoutError::Timeout) => {
                    limit = None;
                    let message = format!("the plugin is not back after {:?}", self.deadline);
                    let failure = Failure::new(FailureKind::Hung, message);
                    match hung.take().map(|hung| hung(failure)) {
                        Some(Signal::Answer(result)) => self.push(result),
                        Some(Signal::Told(result)) => self.told(result),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Waits for the next poll: the time that the schedule says, or less if the plugin has something new. One that
    /// fails is not asked sooner for that.
    fn pause(&mut self, time: Duration, failed: bool) -> Result<(), Stopped> {
        let began = Instant::now();
        loop {
            while let Some(command) = self.untold.pop_front() {
                self.tell(command)?;
            }
            if self.finishing.is_some() {
                return Err(Stopped);
            }
            let time = if self.nudged && !failed {
                SHORTEST
            } else {
                time
            };
            match self
                .inbox
                .recv_timeout(time.saturating_sub(began.elapsed()))
            {
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Ok(Signal::Changed) => self.hear_nudge(),
                Ok(Signal::Command(command)) => self.untold.push_back(command),
                Ok(Signal::Finish(done)) => self.finishing = Some(done),
                // No answer is due, so it is the end.
                _ => return Err(Stopped),
            }
        }
    }

    fn hear_nudge(&mut self) {
        self.nudges.store(false, Ordering::Relaxed);
        self.nudged = true;
    }

    fn tell(&mut self, command: Command) -> Result<(), Stopped> {
        let call = Call::Command(command, self.deadline);
        self.calls.send(call).map_err(|_| Stopped)?;
        self.telling = true;
        let back = self.back(|failure| Signal::Told(Err(failure)))?;
        self.telling = false;
        match back {
            Signal::Told(result) => self.told(result),
            _ => return Err(Stopped),
        }
        Ok(())
    }

    fn told(&self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            tracing::warn!(source = %self.source, kind = %failure.kind, %failure,
                "a discovery plugin did not take a command");
        }
    }
}

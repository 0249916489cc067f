//! The thread that schedules polls and enforces their deadline.

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
    messages::{Call, TimerEvent},
    schedule::{MIN_PAUSE, Schedule},
};
use crate::{Failure, FailureKind, process::GRACE};

/// Schedules polls and commands of a source.
pub(super) struct PollTimer {
    pub(super) source: String,
    pub(super) deadline: Duration,
    /// A call may hang. Calls on an isolated plugin always return.
    pub(super) may_hang: bool,
    pub(super) schedule: Schedule,
    pub(super) random: Random,
    pub(super) sink: Sink,
    pub(super) calls: Sender<Call>,
    pub(super) inbox: Receiver<TimerEvent>,
    /// Commands that arrived while the plugin was busy.
    pub(super) pending_commands: VecDeque<Command>,
    /// A command is running.
    pub(super) command_running: bool,
    /// A call is running.
    pub(super) busy: bool,
    /// Dropped at the end; see [`TimerEvent::Finish`].
    pub(super) finishing: Option<Sender<Infallible>>,
    /// The plugin has signalled a change since the start of the last poll.
    pub(super) has_changed: bool,
    /// A change signal is in the inbox. Further signals are dropped until it is handled.
    pub(super) signal_queued: Arc<AtomicBool>,
}

/// The source was stopped.
struct Stopped;

impl PollTimer {
    pub(super) fn run(mut self) {
        while self.poll_once().is_ok() {}
        // The process of a plugin that is idle gets the time to end well. A plugin that is busy ends with this process.
        if let Some(done) = self.finishing.take()
            && !self.busy
            && !self.may_hang
        {
            // Fails after the end of the poll thread.
            let _ = self.calls.send(Call::End(done));
        }
    }

    /// Runs one poll and the pause after it.
    fn poll_once(&mut self) -> Result<(), Stopped> {
        self.has_changed = false;
        self.calls
            .send(Call::Poll(self.deadline))
            .map_err(|_| Stopped)?;
        let hung = |failure| TimerEvent::PollDone(Err(failure));
        let result = match self.wait_result(hung)? {
            TimerEvent::PollDone(result) => result,
            _ => return Err(Stopped),
        };
        let failed = result.is_err();
        let pause = self.schedule.after(&result, &mut self.random);
        self.update(result, Some(pause));
        self.pause(pause, failed)
    }

    fn update(&mut self, result: Result<Snapshot, Failure>, next: Option<Duration>) {
        let source = self.source.clone();
        (self.sink)(Update {
            source,
            result,
            at: Instant::now(),
            next,
        });
    }

    /// Waits for the result of a call. A late call is reported once as hung, and its result is still awaited.
    fn wait_result(
        &mut self,
        hung: impl FnOnce(Failure) -> TimerEvent,
    ) -> Result<TimerEvent, Stopped> {
        self.busy = true;
        let limit = self.deadline + GRACE;
        let mut limit = self.may_hang.then(|| Instant::now() + limit);
        let mut hung = Some(hung);
        loop {
            let event = match limit {
                Some(limit) => self
                    .inbox
                    .recv_timeout(limit.saturating_duration_since(Instant::now())),
                None => self.inbox.recv().map_err(RecvTimeoutError::from),
            };
            match event {
                Ok(TimerEvent::Changed) => self.on_change(),
                Ok(TimerEvent::Command(command)) => self.pending_commands.push_back(command),
                Ok(TimerEvent::Finish(done)) => {
                    self.finishing = Some(done);
                    if !self.command_running && self.pending_commands.is_empty() {
                        return Err(Stopped);
                    }
                }
                Ok(TimerEvent::Stop) | Err(RecvTimeoutError::Disconnected) => return Err(Stopped),
                Ok(result) => {
                    self.busy = false;
                    return Ok(result);
                }
                Err(RecvTimeoutError::Timeout) => {
                    limit = None;
                    let message = format!("the plugin is not back after {:?}", self.deadline);
                    let failure = Failure::new(FailureKind::Hung, message);
                    match hung.take().map(|hung| hung(failure)) {
                        Some(TimerEvent::PollDone(result)) => self.update(result, None),
                        Some(TimerEvent::CommandDone(result)) => self.log_failure(result),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Waits for the next poll: the scheduled time, or less after a change signal. A signal does not shorten the pause after a
    /// failure.
    fn pause(&mut self, time: Duration, failed: bool) -> Result<(), Stopped> {
        let began = Instant::now();
        loop {
            while let Some(command) = self.pending_commands.pop_front() {
                self.run_command(command)?;
            }
            if self.finishing.is_some() {
                return Err(Stopped);
            }
            let time = if self.has_changed && !failed {
                MIN_PAUSE
            } else {
                time
            };
            match self
                .inbox
                .recv_timeout(time.saturating_sub(began.elapsed()))
            {
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Ok(TimerEvent::Changed) => self.on_change(),
                Ok(TimerEvent::Command(command)) => self.pending_commands.push_back(command),
                Ok(TimerEvent::Finish(done)) => self.finishing = Some(done),
                // No result is due, so only a stop is left.
                _ => return Err(Stopped),
            }
        }
    }

    fn on_change(&mut self) {
        self.signal_queued.store(false, Ordering::Relaxed);
        self.has_changed = true;
    }

    fn run_command(&mut self, command: Command) -> Result<(), Stopped> {
        let call = Call::Command(command, self.deadline);
        self.calls.send(call).map_err(|_| Stopped)?;
        self.command_running = true;
        let result = self.wait_result(|failure| TimerEvent::CommandDone(Err(failure)))?;
        self.command_running = false;
        match result {
            TimerEvent::CommandDone(result) => self.log_failure(result),
            _ => return Err(Stopped),
        }
        Ok(())
    }

    fn log_failure(&self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            tracing::warn!(source = %self.source, kind = %failure.kind, %failure,
                "a discovery plugin did not take a command");
        }
    }
}

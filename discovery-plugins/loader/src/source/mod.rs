//! A source of hosts: a plugin and the two threads that poll it.
//!
//! ```text
//!   poll thread                           poll timer
//!   create, poll, destroy  <-- poll ---   by schedule, or after a change signal
//!   (may hang)             -- result -->  waits for the result until the deadline
//!                                         passes an Update to the sink
//!   any thread of the plugin -- changed -->
//! ```
//!
//! This module keeps the invariants D6 and D7 of the crate. The poll timer never calls the plugin, and requests one call at a
//! time. The poll thread starts the process of an isolated plugin, which ends with that thread.

mod messages;
mod poll_thread;
mod poll_timer;
mod schedule;

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{Command, Snapshot};
use serde_json::{Map, Value};

pub use schedule::Backoff;

use self::{messages::TimerEvent, poll_thread::PollThread, schedule::Schedule};
use crate::{Failure, Isolation, Plugin};

/// The result of a poll.
#[derive(Clone, Debug)]
pub struct Update {
    /// The name of the source.
    pub source: String,
    /// A valid snapshot, or the failure.
    pub result: Result<Snapshot, Failure>,
    /// The time of the result.
    pub at: Instant,
    /// The time from the result to the next poll. `None` while a call hangs.
    pub next: Option<Duration>,
}

/// Takes each update, on a thread of the source. Polls wait while it blocks.
pub type Sink = Box<dyn FnMut(Update) + Send>;

/// A generator of uniformly distributed numbers.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// Timing of polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From an answer to the next poll, unless the plugin sets that time.
    pub interval: Duration,
    /// Time limit of a call. Half a second later the plugin counts as hung.
    pub deadline: Duration,
    /// From a failure to the next poll.
    pub backoff: Backoff,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            deadline: Duration::from_secs(30),
            backoff: Backoff::default(),
        }
    }
}

/// A source of hosts that is not started.
pub struct Source {
    name: String,
    plugin: Plugin,
    options: Map<String, Value>,
    settings: Settings,
    random: Random,
}

impl Source {
    /// A source with default settings and the system's random numbers. Its updates carry the name.
    pub fn new(
        name: impl Into<String>,
        plugin: impl Into<Plugin>,
        options: Map<String, Value>,
    ) -> Self {
        Self {
            name: name.into(),
            plugin: plugin.into(),
            options,
            settings: Settings::default(),
            random: Box::new(|| getrandom::u64().unwrap_or(u64::MAX / 2)),
        }
    }

    /// With other settings.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// With other random numbers.
    pub fn random(self, random: Random) -> Self {
        Self { random, ..self }
    }

    /// Starts the threads and the first poll. Fails if a thread cannot be started.
    pub fn start(self, sink: Sink) -> io::Result<Running> {
        let (events, inbox) = channel();
        let (calls, outbox) = channel();
        let signal_queued = Arc::new(AtomicBool::new(false));
        let may_hang = self.plugin.isolation() == Isolation::Thread;
        let poll_thread = PollThread::new(
            self.plugin,
            self.options,
            events.clone(),
            signal_queued.clone(),
        );
        let named = |role: &str| thread::Builder::new().name(format!("{role} {}", self.name));
        named("plugin").spawn(move || poll_thread.run(&outbox))?;
        let poll_timer = poll_timer::PollTimer {
            deadline: self.settings.deadline,
            may_hang,
            schedule: Schedule::new(&self.settings),
            random: self.random,
            sink,
            calls,
            inbox,
            source: self.name.clone(),
            pending_commands: Default::default(),
            command_running: false,
            busy: false,
            finishing: None,
            has_changed: false,
            signal_queued,
        };
        named("discovery").spawn(move || poll_timer.run())?;
        Ok(Running { events })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            plugin,
            options,
            settings,
            ..
        } = self;
        f.debug_struct("Source")
            .field("name", name)
            .field("plugin", plugin)
            .field("options", options)
            .field("settings", settings)
            .finish_non_exhaustive()
    }
}

/// A source that is polled until this is dropped.
///
/// Dropping it does not wait. One more update may still arrive. The plugin is destroyed after its current call returns.
#[derive(Debug)]
pub struct Running {
    events: Sender<TimerEvent>,
}

impl Running {
    /// Queues a command for the plugin. A failure is logged.
    pub fn command(&self, command: Command) {
        // Fails after the end of the poll timer.
        let _ = self.events.send(TimerEvent::Command(command));
    }

    /// Stops after the plugin has received all commands, and after its process has ended if it is idle. Waits for that until
    /// `deadline`. The process of a busy plugin ends with the calling process.
    pub fn finish(self, deadline: Instant) {
        let (done, finished) = channel();
        if self.events.send(TimerEvent::Finish(done)).is_ok() {
            // Nothing is sent: this returns when the sender is dropped, or at the deadline.
            let _ = finished.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Stops polling; the same as dropping it.
    pub fn stop(self) {}
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails after the end of the poll timer.
        let _ = self.events.send(TimerEvent::Stop);
    }
}

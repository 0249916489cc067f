//! A source of hosts: a plugin that is polled from threads of its own.
//!
//! ```text
//!   caller thread                         supervisor thread
//!   create, poll, destroy  <-- poll ---   when the schedule or the plugin says so
//!   (may hang)             -- result -->  waits for it, but not beyond the deadline
//!                                         hands an Update to the sink
//!   any thread of the plugin -- changed -->
//! ```
//!
//! Invariants D6 and D7 of the crate live here: the supervisor never calls the plugin, and asks the caller for one
//! thing at a time. The process of an isolated plugin is started by the caller, and ends with it.

mod caller;
mod schedule;
mod supervisor;

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

use self::{schedule::Schedule, supervisor::Signal};
use crate::{Failure, Isolation, Plugin};

/// What a poll gave.
#[derive(Clone, Debug)]
pub struct Update {
    /// The name that the source was given.
    pub source: String,
    /// A whole snapshot, or why there is none.
    pub result: Result<Snapshot, Failure>,
    /// When it was known.
    pub at: Instant,
}

/// Takes each update, on a thread of the source. It may block, and then polls wait.
pub type Sink = Box<dyn FnMut(Update) + Send>;

/// Numbers that are spread evenly over all of `u64`.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// When to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From a good answer to the next poll, if the plugin does not say when it wants to be asked again.
    pub interval: Duration,
    /// The time that a plugin gets for a call; half a second later it counts as hung.
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

/// A source of hosts that does not run yet.
pub struct Source {
    name: String,
    plugin: Plugin,
    options: Map<String, Value>,
    settings: Settings,
    random: Random,
}

impl Source {
    /// A source with default settings and the system's random numbers. The name is what its updates carry.
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

    /// Starts to poll, at once. An error is one of starting a thread.
    pub fn start(self, sink: Sink) -> io::Result<Running> {
        let (signals, inbox) = channel();
        let (calls, outbox) = channel();
        let nudges = Arc::new(AtomicBool::new(false));
        let may_hang = self.plugin.isolation() == Isolation::Thread;
        let caller =
            caller::Caller::new(self.plugin, self.options, signals.clone(), nudges.clone());
        let named = |role: &str| thread::Builder::new().name(format!("{role} {}", self.name));
        named("plugin").spawn(move || caller.run(&outbox))?;
        let supervisor = supervisor::Supervisor {
            deadline: self.settings.deadline,
            may_hang,
            schedule: Schedule::new(&self.settings),
            random: self.random,
            sink,
            calls,
            inbox,
            source: self.name.clone(),
            untold: Default::default(),
            telling: false,
            finishing: None,
            nudged: false,
            nudges,
        };
        named("discovery").spawn(move || supervisor.run())?;
        Ok(Running { signals })
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
/// Dropping it does not wait: an update that is under way may still arrive, and the plugin is destroyed when the
/// call that it is in comes back.
#[derive(Debug)]
pub struct Running {
    signals: Sender<Signal>,
}

impl Running {
    /// Tells the plugin something, when it is not busy. What comes of it is in the log.
    pub fn command(&self, command: Command) {
        // It fails if the supervisor has ended.
        let _ = self.signals.send(Signal::Command(command));
    }

    /// Stops to poll once the plugin has been told everything, but waits for that only until `deadline`.
    pub fn finish(self, deadline: Instant) {
        let (done, finished) = channel();
        if self.signals.send(Signal::Finish(done)).is_ok() {
            // Nothing is ever sent: it comes back when the other end is gone, or the time is over.
            let _ = finished.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Stops to poll; the same as dropping it.
    pub fn stop(self) {}
}

impl Drop for Running {
    fn drop(&mut self) {
        // It fails if the supervisor has ended.
        let _ = self.signals.send(Signal::Stop);
    }
}

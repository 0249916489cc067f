//! The thread that calls the plugin.

use std::{
    sync::mpsc::{Receiver, Sender},
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{Command, Snapshot};
use serde_json::{Map, Value};

use super::supervisor::Signal;
use crate::{Failure, Live, Plugin};

/// What is asked of the plugin, within a time.
pub(super) enum Call {
    Poll(Duration),
    Command(Command, Duration),
}

/// Owns the instance. It is made at the first poll, and made anew after one that it did not survive.
pub(super) struct Caller {
    plugin: Plugin,
    options: Map<String, Value>,
    live: Option<Live>,
    signals: Sender<Signal>,
}

impl Caller {
    pub(super) fn new(
        plugin: Plugin,
        options: Map<String, Value>,
        signals: Sender<Signal>,
    ) -> Self {
        Self {
            plugin,
            options,
            live: None,
            signals,
        }
    }

    /// Calls when asked to, until nobody can ask any more.
    pub(super) fn run(mut self, calls: &Receiver<Call>) {
        while let Ok(call) = calls.recv() {
            let signal = match call {
                Call::Poll(deadline) => Signal::Answer(self.poll(deadline)),
                Call::Command(command, deadline) => Signal::Told(self.command(&command, deadline)),
            };
            if self.signals.send(signal).is_err() {
                break;
            }
        }
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, Failure> {
        let started = Instant::now();
        let live = match &mut self.live {
            Some(live) => live,
            empty => {
                let signals = self.signals.clone();
                // It fails if the supervisor has ended.
                let nudge = move || drop(signals.send(Signal::Changed));
                let made = self
                    .plugin
                    .start(&self.options, deadline, Box::new(nudge))?;
                empty.insert(made)
            }
        };
        let result = live.poll(deadline.saturating_sub(started.elapsed()));
        self.keep(result)
    }

    fn command(&mut self, command: &Command, deadline: Duration) -> Result<(), Failure> {
        // Who was not asked for hosts yet, or died, has nothing to do with any of them.
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        let result = live.command(command, deadline);
        self.keep(result)
    }

    fn keep<T>(&mut self, result: Result<T, Failure>) -> Result<T, Failure> {
        if result.as_ref().is_err_and(Live::is_over) {
            self.live = None;
        }
        result
    }
}

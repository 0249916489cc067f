//! The thread that calls the plugin.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender},
    },
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{Command, Snapshot};
use serde_json::{Map, Value};

use super::messages::{Call, TimerEvent};
use crate::{Failure, Live, Plugin};

/// Owns the instance. The first poll creates it, and so does the first poll after a failure that ended it.
pub(super) struct PollThread {
    plugin: Plugin,
    options: Map<String, Value>,
    live: Option<Live>,
    events: Sender<TimerEvent>,
    /// See [`PollTimer::signal_queued`](super::poll_timer::PollTimer::signal_queued).
    signal_queued: Arc<AtomicBool>,
}

impl PollThread {
    pub(super) fn new(
        plugin: Plugin,
        options: Map<String, Value>,
        events: Sender<TimerEvent>,
        signal_queued: Arc<AtomicBool>,
    ) -> Self {
        Self {
            plugin,
            options,
            live: None,
            events,
            signal_queued,
        }
    }

    /// Executes calls until the end, or until their sender is dropped.
    pub(super) fn run(mut self, calls: &Receiver<Call>) {
        while let Ok(call) = calls.recv() {
            let event = match call {
                Call::Poll(deadline) => TimerEvent::PollDone(self.poll(deadline)),
                Call::Command(command, deadline) => {
                    TimerEvent::CommandDone(self.command(&command, deadline))
                }
                Call::End(done) => {
                    self.live = None;
                    drop(done);
                    break;
                }
            };
            if self.events.send(event).is_err() {
                break;
            }
        }
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, Failure> {
        let started = Instant::now();
        let live = match &mut self.live {
            Some(live) => live,
            empty => {
                let (events, queued) = (self.events.clone(), self.signal_queued.clone());
                let signal = move || {
                    if !queued.swap(true, Ordering::Relaxed) {
                        // Fails after the end of the poll timer.
                        let _ = events.send(TimerEvent::Changed);
                    }
                };
                let live = self
                    .plugin
                    .start(&self.options, deadline, Box::new(signal))?;
                empty.insert(live)
            }
        };
        let result = live.poll(deadline.saturating_sub(started.elapsed()));
        self.drop_if_over(result)
    }

    fn command(&mut self, command: &Command, deadline: Duration) -> Result<(), Failure> {
        // An instance that does not exist, or has died, has listed no hosts.
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        let result = live.command(command, deadline);
        self.drop_if_over(result)
    }

    /// Drops the instance after a failure that ended it.
    fn drop_if_over<T>(&mut self, result: Result<T, Failure>) -> Result<T, Failure> {
        if result.as_ref().is_err_and(Live::is_over) {
            self.live = None;
        }
        result
    }
}

//! The thread that calls the plugin.

use std::{
    sync::mpsc::{Receiver, Sender},
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::Snapshot;
use serde_json::{Map, Value};

use super::supervisor::Signal;
use crate::{Failure, FailureKind, Instance, Library};

/// A request to poll within a time.
pub(super) struct Poll {
    pub(super) deadline: Duration,
}

/// Owns the instance. It is made at the first poll, and made anew after a panic.
pub(super) struct Caller {
    library: Library,
    options: Map<String, Value>,
    instance: Option<Instance>,
}

impl Caller {
    pub(super) fn new(library: Library, options: Map<String, Value>) -> Self {
        Self {
            library,
            options,
            instance: None,
        }
    }

    /// Polls when asked to, until nobody can ask any more.
    pub(super) fn run(mut self, calls: &Receiver<Poll>, answers: &Sender<Signal>) {
        while let Ok(Poll { deadline }) = calls.recv() {
            let result = self.poll(deadline);
            if answers.send(Signal::Answer(result)).is_err() {
                break;
            }
        }
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, Failure> {
        let started = Instant::now();
        let instance = match &mut self.instance {
            Some(instance) => instance,
            empty => empty.insert(self.library.create(&self.options)?),
        };
        let result = instance.poll(deadline.saturating_sub(started.elapsed()));
        if result
            .as_ref()
            .is_err_and(|failure| failure.kind == FailureKind::Panicked)
        {
            self.instance = None;
        }
        result
    }
}

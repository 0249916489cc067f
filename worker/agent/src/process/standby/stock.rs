//! The interpreters at hand, shared between the keeper thread, the starter thread and the agent's loop.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::{fork_server::ForkServer, interpreter::StandbyInterpreter, template::Template};

/// What the threads share. No one holds its lock over a system call that waits.
#[derive(Debug, Default)]
pub(super) struct Stock(Mutex<State>);

/// The state behind the lock.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The workers that started last, once one has.
    pub(super) wanted: Option<Wanted>,
    /// The fork server, once it has imported the modules.
    pub(super) server: Option<Arc<ForkServer>>,
    /// The running fork server, also while it imports.
    pub(super) running: Option<Arc<ForkServer>>,
    /// Interpreters of the template of [`State::wanted`] that wait.
    pub(super) interpreters: Vec<StandbyInterpreter>,
    /// No interpreters are needed any more.
    pub(super) is_over: bool,
}

/// The workers for which interpreters are kept.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) template: Template,
    /// Their number on this host.
    pub(super) count: usize,
    /// When the last of them started.
    pub(super) last_start: Instant,
}

impl Stock {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets all interpreters, and kills them and their server.
    pub(super) fn clear(&mut self) {
        self.interpreters.clear();
        self.server = None;
        if let Some(server) = self.running.take() {
            server.kill();
        }
    }
}

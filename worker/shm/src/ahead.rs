//! A thread that provides memory ahead of need.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// A thread that ends when it has provided all, or is told to.
#[derive(Debug)]
pub(crate) struct Ahead<T> {
    thread: JoinHandle<T>,
    stopped: Arc<AtomicBool>,
    /// The process that has the thread. A child that was forked has none.
    pid: u32,
}

impl<T: Send + 'static> Ahead<T> {
    /// Runs `provide`, which looks at its argument after each step: it is set once the thread has to end. `None` if no thread
    /// can be started.
    pub(crate) fn start(provide: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Option<Self> {
        let stopped = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&stopped);
        let builder = thread::Builder::new().name("elasticrun-ahead".to_owned());
        let thread = builder.spawn(move || provide(&seen)).ok()?;
        let pid = std::process::id();
        Some(Self {
            thread,
            stopped,
            pid,
        })
    }

    /// Whether all is provided.
    #[cfg(test)]
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the thread. Returns what it has made; `None` in a child that was forked.
    pub(crate) fn stop(self) -> Option<T> {
        if std::process::id() != self.pid {
            std::mem::forget(self.thread);
            return None;
        }
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().ok()
    }
}

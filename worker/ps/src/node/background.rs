//! A thread of a node that waits for a store: reads and writes of snapshots, one after the other.
//!
//! It is started by the first of them. The end of the node does not wait for it: a store may hang.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, mpsc},
    thread,
};

use super::{Node, lock};
use crate::error::Error;

type Job = Box<dyn FnOnce(&Arc<Node>) + Send>;

/// The thread.
#[derive(Debug, Default)]
pub(super) struct Background(Mutex<Option<mpsc::Sender<Job>>>);

impl Background {
    /// What has not begun is given up.
    pub(super) fn stop(&self) {
        *lock(&self.0) = None;
    }
}

impl Node {
    /// Calls `work` on the thread, and then `done` with its result, also if it panics. If the system gives no thread, neither is called: the
    /// scheduler gives up a snapshot of which it hears nothing.
    pub(super) fn in_background<R>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<R, Error> + Send + 'static,
        done: impl FnOnce(&Arc<Self>, Result<R, Error>) + Send + 'static,
    ) {
        let job: Job = Box::new(move |node| {
            let worked = catch_unwind(AssertUnwindSafe(|| work(node)));
            let panicked = |_| Err(Error::Snapshot("a thread has panicked".to_owned()));
            done(node, worked.unwrap_or_else(panicked));
        });
        let mut sender = lock(&self.background.0);
        if sender.is_none() {
            *sender = Some(self.start_background());
        }
        let sent = sender.as_ref().map(|sender| sender.send(job));
        // There was no thread: perhaps there is one next time.
        if matches!(sent, Some(Err(_))) {
            *sender = None;
        }
    }

    fn start_background(self: &Arc<Self>) -> mpsc::Sender<Job> {
        let (sender, jobs) = mpsc::channel::<Job>();
        let node = Arc::clone(self);
        let started = thread::Builder::new()
            .name("ps-snapshot".into())
            .spawn(move || {
                for job in jobs {
                    if !node.is_stopped() {
                        job(&node);
                    }
                }
            });
        if let Err(error) = started {
            tracing::error!(%error, "snapshots are not possible");
        }
        sender
    }
}

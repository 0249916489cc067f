//! The thread on which all that concerns etcd runs.
//!
//! It is not the thread of the run loop: the lease of the driver is renewed however busy that is, and before and after it runs.

use std::{io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A runtime with a thread of its own, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Runtime {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Runtime {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            let _ = runtime.block_on(stopped);
            // A lookup of a name may take long.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("etcd".to_owned()).spawn(run)?;
        Ok(Self {
            handle,
            _stop: stop,
        })
    }

    /// Where tasks are spawned.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for a result. Call it on a thread that runs no other runtime.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.handle.block_on(work)
    }
}

//! Calls of an asynchronous SDK, from a plugin that is called by a thread and is given a time.

use std::{future::Future, time::Duration};

use elasticrun_plugin_sdk::PluginError;
use tokio::runtime::{Builder, Runtime};

/// Runs futures on the thread that asks. Dropping it waits for nobody.
#[derive(Debug)]
pub struct EventLoop {
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
}

impl EventLoop {
    /// # Errors
    /// The system gives no event loop; a later try may have one.
    pub fn new() -> Result<Self, PluginError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| PluginError::retryable(format!("no event loop: {error}")))?;
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    /// Runs work to its end, but not beyond a time. `place` is who should have answered.
    ///
    /// # Errors
    /// Those of the work; a retryable one when the time is over.
    pub fn within<T>(
        &self,
        limit: Duration,
        place: &str,
        work: impl Future<Output = Result<T, PluginError>>,
    ) -> Result<T, PluginError> {
        let Some(runtime) = &self.runtime else {
            return Err(PluginError::retryable("the plugin is closed"));
        };
        let result = runtime.block_on(async { tokio::time::timeout(limit, work).await });
        result.unwrap_or_else(|_| {
            let why = format!("{place}: no answer within {limit:?}");
            Err(PluginError::retryable(why))
        })
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        // Looking up a name happens on a thread that cannot be interrupted; nobody waits for it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

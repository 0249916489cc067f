//! Runs calls of an asynchronous SDK in the synchronous calls of a plugin, with a deadline.

use std::{future::Future, time::Duration};

use elasticrun_plugin_sdk::PluginError;
use tokio::runtime::{Builder, Runtime};

/// Runs futures on the calling thread. Dropping it does not block.
#[derive(Debug)]
pub struct EventLoop {
    /// Taken on drop.
    runtime: Option<Runtime>,
}

impl EventLoop {
    /// # Errors
    /// The system refuses an event loop. The error is temporary.
    pub fn new() -> Result<Self, PluginError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| PluginError::retryable(format!("no event loop: {error}")))?;
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    /// Runs work to its end or until a time limit. `place` names the server in the message.
    ///
    /// # Errors
    /// Those of the work, and a retryable one at the time limit.
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
        // A thread that resolves a name cannot be interrupted, so this does not wait for it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

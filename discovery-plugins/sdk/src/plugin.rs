//! The trait of plugins.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::{ChangeNotifier, Command, Manifest, PluginError, Snapshot};

/// A source of hosts.
///
/// Calls on an instance do not overlap, but may come from different threads. A panic is caught and ends the instance. The host
/// creates a new one. Events of [`tracing`](crate::tracing) go to the driver's log. Print nothing to standard output: in the
/// driver's process it would mix with the job's output.
pub trait Plugin: Sized + Send + 'static {
    /// Its description.
    const MANIFEST: Manifest;

    /// Its options, as in `--discovery NAME:key=value`. Numbers and booleans may be strings, which are converted (see
    /// [`from_options`](crate::from_options)). With `deny_unknown_fields` a misspelled option is an error.
    type Config: DeserializeOwned;

    /// Creates an instance. It checks the options and may contact the source. The time limit is that of a poll.
    fn create(config: Self::Config) -> Result<Self, PluginError>;

    /// Returns the current hosts. It must return within `deadline`. A later return counts as failed, and no call follows
    /// before it.
    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError>;

    /// Whether [`Self::watch`] is implemented.
    const WATCHES: bool = false;

    /// Called once, after `create`, if [`Self::WATCHES`]. The plugin may keep `changed` and notify it from any thread when the
    /// hosts may have changed. The host then polls at once. The regular polls continue, so that a missed change is found
    /// later.
    fn watch(&mut self, _changed: ChangeNotifier) -> Result<(), PluginError> {
        Ok(())
    }

    /// Executes a command of the host. It must return within `deadline`, like a poll. An error is logged, and that of
    /// [`Command::SelfTest`] is shown to the user. Return `Ok` for a command that needs no action.
    fn command(&mut self, _command: Command, _deadline: Duration) -> Result<(), PluginError> {
        Ok(())
    }
}

//! What a plugin has to offer.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::{Changed, Command, Manifest, PluginError, Snapshot};

/// A source of hosts.
///
/// The host calls it from one thread at a time, not always from the same one. A panic is caught and ends the
/// instance; the host makes a new one. What is logged by [`tracing`](crate::tracing) arrives in the driver's log.
/// Print nothing to standard output: what runs in the driver's own process would print into the job's output.
pub trait Plugin: Sized + Send + 'static {
    /// What it says of itself.
    const MANIFEST: Manifest;

    /// Its options, as `--discovery NAME:key=value` gives them. Numbers and truth values may arrive as text and
    /// are read all the same (see [`from_options`](crate::from_options)). `deny_unknown_fields` turns a slip
    /// into a message.
    type Config: DeserializeOwned;

    /// Makes an instance. Checks the options; may talk to the source, but not for long: the host waits no longer
    /// than for a poll.
    fn create(config: Self::Config) -> Result<Self, PluginError>;

    /// The hosts as they are now. To be back within `deadline`: what hangs beyond it counts as failed, and is
    /// not asked again before it is back.
    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError>;

    /// Whether [`Self::watch`] is implemented.
    const WATCHES: bool = false;

    /// Called once, behind `create`, if [`Self::WATCHES`]: the plugin may keep `changed` and call it, from any
    /// thread, whenever the hosts may have changed; it is polled at once. It is polled at its pace all the same, so
    /// a change that it misses is found late and not never.
    fn watch(&mut self, _changed: Changed) -> Result<(), PluginError> {
        Ok(())
    }

    /// The host tells or asks something. To be back within `deadline`, as from a poll. An error is logged, and for
    /// [`Command::SelfTest`] shown to who asked. What need not be known is answered `Ok`.
    fn command(&mut self, _command: Command, _deadline: Duration) -> Result<(), PluginError> {
        Ok(())
    }
}

//! What a plugin has to offer.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::{Manifest, PluginError, Snapshot};

/// A source of hosts.
///
/// The host calls it from one thread at a time, not always from the same one. A panic is caught and ends the
/// instance; the host makes a new one. What is printed to standard output lands in the job's output: don't.
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
}

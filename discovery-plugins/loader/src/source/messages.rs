//! What the poll timer and the poll thread send each other.

use std::{convert::Infallible, sync::mpsc::Sender, time::Duration};

use elasticrun_plugin_sdk::{Command, Snapshot};

use crate::Failure;

/// A call on the plugin. Those that the plugin answers have a deadline.
pub(super) enum Call {
    Poll(Duration),
    Command(Command, Duration),
    /// Destroy the instance. The sender is dropped then.
    End(Sender<Infallible>),
}

/// An event for the poll timer.
pub(super) enum TimerEvent {
    /// A poll has returned.
    PollDone(Result<Snapshot, Failure>),
    /// A command has returned.
    CommandDone(Result<(), Failure>),
    /// The hosts of the plugin may have changed, or its process has ended.
    Changed,
    /// A new command for the plugin.
    Command(Command),
    /// Stop after the pending commands. The sender is dropped once the process of an idle plugin has ended too.
    Finish(Sender<Infallible>),
    /// Stop now.
    Stop,
}

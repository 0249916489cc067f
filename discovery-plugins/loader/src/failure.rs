//! A poll that gave no list.

use std::{fmt, time::Duration};

use elasticrun_plugin_sdk::{ErrorKind, PluginError};

/// A poll that gave no list. It prints as its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What it means for the job.
    pub kind: FailureKind,
    /// For a person: a lower-case fragment that does not name the source.
    pub message: String,
    /// The source asks not to be called before this time has passed.
    pub retry_after: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }
}

impl From<PluginError> for Failure {
    fn from(error: PluginError) -> Self {
        let kind = match error.kind {
            ErrorKind::Retryable => FailureKind::Retryable,
            ErrorKind::BadConfig => FailureKind::BadConfig,
            ErrorKind::Auth => FailureKind::Auth,
            ErrorKind::Throttled => FailureKind::Throttled,
            ErrorKind::UnknownGroup => FailureKind::UnknownGroup,
            ErrorKind::Panic => FailureKind::Panicked,
        };
        Self {
            retry_after: error.retry_after,
            ..Self::new(kind, error.message)
        }
    }
}

/// What a failure means for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// It may work next time.
    Retryable,
    /// The plugin's options are wrong.
    BadConfig,
    /// The source does not let us in.
    Auth,
    /// The source asks us to slow down.
    Throttled,
    /// The source does not know the group that is asked for.
    UnknownGroup,
    /// The plugin panicked; it is made anew for the next poll.
    Panicked,
    /// The plugin is not back although its time is over.
    Hung,
    /// The plugin's process ended, crashed or could not be started; it is started anew for the next poll.
    Died,
    /// The plugin's answer breaks a rule.
    BadAnswer,
}

impl FailureKind {
    /// Whether trying again cannot help, so that a job whose first discovery fails like this should end.
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::BadConfig | Self::Auth | Self::UnknownGroup)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retryable => "retryable",
            Self::BadConfig => "bad configuration",
            Self::Auth => "no access",
            Self::Throttled => "throttled",
            Self::UnknownGroup => "unknown group",
            Self::Panicked => "panicked",
            Self::Hung => "hung",
            Self::Died => "died",
            Self::BadAnswer => "bad answer",
        })
    }
}

//! Failures of polls.

use std::{fmt, time::Duration};

use elasticrun_plugin_sdk::{ErrorKind, PluginError};

/// Why a poll gave no list. It prints as its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its meaning for the job.
    pub kind: FailureKind,
    /// For the user: a lower-case fragment that does not name the source.
    pub message: String,
    /// The source requests this pause.
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

/// The meaning of a failure for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The next poll may succeed.
    Retryable,
    /// The plugin's options are wrong.
    BadConfig,
    /// The source denies access.
    Auth,
    /// The source limits the rate of requests.
    Throttled,
    /// The source does not know the requested group.
    UnknownGroup,
    /// The plugin panicked. The next poll creates a new instance.
    Panicked,
    /// The plugin did not return in time.
    Hung,
    /// The plugin's process ended, crashed or could not be started. The next poll starts a new one.
    Died,
    /// The plugin's answer breaks a rule.
    BadAnswer,
}

impl FailureKind {
    /// Whether a retry cannot help. A job whose first discovery fails like this ends.
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

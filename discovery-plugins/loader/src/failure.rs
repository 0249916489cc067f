//! Failures of polls.

use std::{fmt, time::Duration};

use elasticrun_plugin_sdk::{ErrorKind, PluginError, text::one_line_within};

/// The length limit of a message, in characters.
pub(crate) const MAX_MESSAGE: usize = 2000;

/// A text of a plugin as one line without control characters, which the driver prints to a terminal.
pub(crate) fn one_line(text: &str) -> String {
    one_line_within(text, MAX_MESSAGE)
}

/// Why a poll gave no list. It prints as its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its meaning for the job.
    pub kind: FailureKind,
    /// For the user: a lower-case fragment that does not name the source. One line of at most 2,000 characters, whatever
    /// the plugin says.
    pub message: String,
    /// The source requests this pause.
    pub retry_after: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: one_line(&message.into()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_whatever_the_plugin_says() {
        let message = |text: &str| Failure::new(FailureKind::Retryable, text).message;
        assert_eq!(message("no\n\u{1b}[31mhosts\n"), "no  [31mhosts");
        let long = message(&"x".repeat(4 << 20));
        assert_eq!(long.len(), MAX_MESSAGE + 3);
        assert!(long.ends_with("x..."));
    }
}

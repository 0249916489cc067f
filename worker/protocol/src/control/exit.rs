//! How a process ended.

use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It ended by itself with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
}

impl Exit {
    /// Whether the process ended with code 0.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::NotStarted(why) => write!(f, "could not be started: {why}"),
        }
    }
}

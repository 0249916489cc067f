//! Errors of plugins.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use elasticrun_hosts::millis;

use crate::abi::code;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The next call may succeed.
    Retryable,
    /// The configuration is wrong. A retry does not help.
    BadConfig,
    /// The source denies access.
    Auth,
    /// The source limits the rate of requests.
    Throttled,
    /// The source does not know the requested group.
    UnknownGroup,
    /// The plugin panicked. Only the SDK sets it.
    Panic,
}

impl ErrorKind {
    /// Its number in the binary interface.
    pub fn code(self) -> i32 {
        match self {
            Self::Retryable => code::RETRYABLE,
            Self::BadConfig => code::BAD_CONFIG,
            Self::Auth => code::AUTH,
            Self::Throttled => code::THROTTLED,
            Self::UnknownGroup => code::UNKNOWN_GROUP,
            Self::Panic => code::PANIC,
        }
    }

    /// The kind with that number. An unknown number, and [`code::OK`], give [`Self::Retryable`].
    pub fn from_code(number: i32) -> Self {
        match number {
            code::BAD_CONFIG => Self::BadConfig,
            code::AUTH => Self::Auth,
            code::THROTTLED => Self::Throttled,
            code::UNKNOWN_GROUP => Self::UnknownGroup,
            code::PANIC => Self::Panic,
            _ => Self::Retryable,
        }
    }
}

/// An error of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The mistake and its remedy for the user, as a lower-case fragment.
    pub message: String,
    /// The pause that the source requests.
    pub retry_after: Option<Duration>,
}

impl PluginError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }

    /// A temporary failure.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Retryable, message)
    }

    /// A wrong configuration.
    pub fn bad_config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadConfig, message)
    }

    /// Access is denied.
    pub fn auth(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Auth, message)
    }

    /// The source limits the rate of requests, optionally with a pause.
    pub fn throttled(message: impl Into<String>, retry_after: Option<Duration>) -> Self {
        Self {
            retry_after,
            ..Self::new(ErrorKind::Throttled, message)
        }
    }

    /// An unknown group.
    pub fn unknown_group(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::UnknownGroup, message)
    }

    /// The answer of a call that fails with this error.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let body = Body {
            message: self.message.clone(),
            retry_after: self.retry_after,
        };
        serde_json::to_vec(&body).expect("text and a number are always JSON")
    }

    /// The error of a code and its answer. An answer that is not JSON becomes the message.
    pub fn from_answer(number: i32, answer: &[u8]) -> Self {
        let body = serde_json::from_slice(answer).unwrap_or_else(|_| Body {
            message: String::from_utf8_lossy(answer).into_owned(),
            retry_after: None,
        });
        let mut error = Self::new(ErrorKind::from_code(number), body.message);
        error.retry_after = body.retry_after;
        if error.message.is_empty() {
            error.message = format!("the plugin gave code {number} and no message");
        }
        error
    }
}

#[derive(Serialize, Deserialize)]
struct Body {
    message: String,
    #[serde(
        rename = "retry_after_ms",
        with = "millis",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    retry_after: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_crosses_and_comes_back() {
        let error = PluginError::throttled("slow down", Some(Duration::from_micros(1500)));
        let json = error.to_json();
        assert_eq!(json, br#"{"message":"slow down","retry_after_ms":2}"#);
        let back = PluginError::from_answer(error.kind.code(), &json);
        assert_eq!(back.retry_after, Some(Duration::from_millis(2)));
        assert_eq!((back.kind, back.message), (error.kind, error.message));
        let kinds = [
            ErrorKind::Retryable,
            ErrorKind::BadConfig,
            ErrorKind::Auth,
            ErrorKind::UnknownGroup,
            ErrorKind::Panic,
        ];
        for kind in kinds {
            assert_eq!(ErrorKind::from_code(kind.code()), kind);
        }
    }

    #[test]
    fn what_is_not_known_may_be_tried_again() {
        let error = PluginError::from_answer(99, br#"{"message":"new","more":[1]}"#);
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::Retryable, "new")
        );
        assert_eq!(PluginError::from_answer(3, b"plain").message, "plain");
        assert_eq!(
            PluginError::from_answer(99, b"").message,
            "the plugin gave code 99 and no message"
        );
    }
}

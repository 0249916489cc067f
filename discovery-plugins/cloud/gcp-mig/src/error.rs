//! Classification of failed requests.

use std::time::Duration;

use elasticrun_plugin_sdk::{ErrorKind, PluginError, text::one_line};
use serde_json::Value;

use elasticrun_plugin_http::Answer;

use crate::pace::INTERVAL;

/// The error of an unsuccessful answer. `what` is the requested object.
pub(crate) fn classify(what: &str, answer: &Answer) -> PluginError {
    let error = &answer.body["error"];
    let reason = error["errors"][0]["reason"].as_str().unwrap_or_default();
    let message = error["message"].as_str();
    let why = one_line(message.unwrap_or("no reason is given"));
    let status = answer.status;
    let kind = kind(status, reason);
    let advice = match kind {
        ErrorKind::Auth => "; see docs/gcp.md for the role that is needed",
        _ => "",
    };
    let mut failure = PluginError::new(
        kind,
        format!("{what}: {status} {reason}: {why}{advice}").replace(" : ", ": "),
    );
    if kind == ErrorKind::Throttled {
        failure.retry_after = Some(answer.retry_after.map_or(INTERVAL, Duration::from_secs));
    }
    failure
}

/// Compute Engine reports a rate limit by 429, or by 403 with a reason.
fn kind(status: u16, reason: &str) -> ErrorKind {
    match (status, reason) {
        (429, _) => ErrorKind::Throttled,
        (403, "rateLimitExceeded" | "userRateLimitExceeded" | "quotaExceeded") => {
            ErrorKind::Throttled
        }
        (401 | 403, _) => ErrorKind::Auth,
        (404, _) => ErrorKind::UnknownGroup,
        (400, _) => ErrorKind::BadConfig,
        _ => ErrorKind::Retryable,
    }
}

/// A string field of an answer. Empty if it is missing.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

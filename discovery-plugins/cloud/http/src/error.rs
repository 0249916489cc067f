//! Errors of requests without an answer.

use elasticrun_plugin_sdk::{PluginError, text::one_line};

/// The server did not answer.
pub(crate) fn unreachable(url: &str, error: &ureq::Error) -> PluginError {
    if matches!(error, ureq::Error::Timeout(_)) {
        return late(url);
    }
    PluginError::retryable(format!(
        "{} has no answer: {}",
        server(url),
        one_line(&error.to_string())
    ))
}

/// The deadline has passed.
pub(crate) fn late(url: &str) -> PluginError {
    PluginError::retryable(format!("{} has not answered in time", server(url)))
}

/// Scheme, host and port of a URL. The rest may be confidential.
fn server(url: &str) -> &str {
    let from = url.find("://").map_or(0, |pos| pos + 3);
    let to = url[from..].find('/').map_or(url.len(), |pos| from + pos);
    &url[..to]
}

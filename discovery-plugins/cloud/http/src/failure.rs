//! What it means that no answer came.

use elasticrun_plugin_sdk::{PluginError, text::one_line};

/// No answer came.
pub fn unreachable(url: &str, error: &ureq::Error) -> PluginError {
    if matches!(error, ureq::Error::Timeout(_)) {
        return late(url);
    }
    PluginError::retryable(format!(
        "{} has no answer: {}",
        server(url),
        one_line(&error.to_string())
    ))
}

/// The time is over.
pub fn late(url: &str) -> PluginError {
    PluginError::retryable(format!("{} has not answered in time", server(url)))
}

/// Scheme, host and port: what follows may hold more than a message should.
fn server(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    let to = url[from..].find('/').map_or(url.len(), |at| from + at);
    &url[..to]
}

//! What a failed request asks of the job.

use std::{error::Error, time::Duration};

use elasticrun_plugin_sdk::{ErrorKind, PluginError};

/// A request that failed; `what` was asked for.
pub(crate) fn of(what: &str, error: &kube::Error) -> PluginError {
    let kube::Error::Api(status) = error else {
        return PluginError::retryable(format!("{what}: no answer: {}", chain(error)));
    };
    let kind = match status.code {
        401 | 403 => ErrorKind::Auth,
        429 => ErrorKind::Throttled,
        400 | 422 => ErrorKind::BadConfig,
        _ => ErrorKind::Retryable,
    };
    let advice = match kind {
        ErrorKind::Auth => "; see docs/kubernetes.md for the role that is needed",
        _ => "",
    };
    let why = short(&status.message);
    let mut failure = PluginError::new(
        kind,
        format!("{what}: {} {}: {why}{advice}", status.code, status.reason),
    );
    if kind == ErrorKind::Throttled {
        let asked = status
            .details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds);
        failure.retry_after = Some(Duration::from_secs(asked.max(1).into()));
    }
    failure
}

/// An error with its causes, each once, on one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        next = error.source();
    }
    short(&said)
}

/// One line of bearable length.
fn short(text: &str) -> String {
    const MOST: usize = 300;
    let line = text.trim().replace(char::is_control, " ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

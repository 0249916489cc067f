//! Classification of failed requests.

use std::time::Duration;

use elasticrun_plugin_sdk::{
    ErrorKind, PluginError,
    text::{one_line, with_causes},
};

/// The error of a failed request. `what` is the requested object.
pub(crate) fn classify(what: &str, error: &kube::Error) -> PluginError {
    let kube::Error::Api(status) = error else {
        return PluginError::retryable(format!("{what}: no answer: {}", with_causes(error)));
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
    let why = one_line(&status.message);
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

//! Classification of failed requests.

use std::time::Duration;

use elasticrun_plugin_sdk::{
    ErrorKind, PluginError,
    text::{one_line, with_causes},
};
use google_cloud_gax::error::{CredentialsError, Error, rpc::StatusDetails};

use crate::pace::INTERVAL;

/// Bytes of an answer that an error quotes, at most.
const MAX_BODY: usize = 1000;

/// A failed request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: PluginError,
    /// Whether the credentials have failed, so that new ones may help.
    pub(crate) unauthenticated: bool,
    /// Whether the credentials gave no token.
    is_tokenless: bool,
}

impl From<PluginError> for Failure {
    fn from(error: PluginError) -> Self {
        Self {
            error,
            unauthenticated: false,
            is_tokenless: false,
        }
    }
}

impl Failure {
    /// The failure where the metadata service was the last source to try, and gave no token.
    pub(crate) fn without_credentials(self) -> Self {
        if !self.is_tokenless {
            return self;
        }
        let why = format!(
            "no Google credentials were found; set GOOGLE_APPLICATION_CREDENTIALS, log in by \
             `gcloud auth application-default login`, or run on an instance ({})",
            self.error.message
        );
        Self {
            error: PluginError::new(ErrorKind::Auth, why),
            ..self
        }
    }
}

/// The failure of a request. `what` is the requested object, `server` the endpoint.
pub(crate) fn classify(what: &str, server: &str, error: &Error) -> Failure {
    if let Some(status) = error.http_status_code() {
        return Failure {
            error: answered(what, status, error),
            unauthenticated: status == 401,
            is_tokenless: false,
        };
    }
    if error.is_authentication() {
        return Failure {
            error: no_token(error),
            unauthenticated: true,
            is_tokenless: true,
        };
    }
    let why = match error.is_deserialization() {
        true => format!(
            "{what}: no answer of Compute Engine: {}",
            with_causes(error)
        ),
        false => format!("{server} has no answer: {}", with_causes(error)),
    };
    PluginError::retryable(why).into()
}

/// The error of an unsuccessful answer.
fn answered(what: &str, status: u16, error: &Error) -> PluginError {
    let answer = error.status();
    let details = answer.into_iter().flat_map(|answer| &answer.details);
    let reasons = details.filter_map(|detail| match detail {
        StatusDetails::ErrorInfo(info) => Some(info.reason.as_str()),
        _ => None,
    });
    let reason = reasons.into_iter().next().unwrap_or_default();
    let why = match answer {
        Some(answer) => one_line(&answer.message),
        None => {
            let body = error.http_payload().map_or(&[][..], |body| &body[..]);
            let body = &body[..body.len().min(MAX_BODY)];
            format!(
                "no answer of Compute Engine: {}",
                one_line(String::from_utf8_lossy(body).trim())
            )
        }
    };
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
        let header = error.http_headers().and_then(|all| all.get("retry-after"));
        let seconds = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        failure.retry_after = Some(seconds.map_or(INTERVAL, Duration::from_secs));
    }
    failure
}

/// Compute Engine reports a rate limit by 429, or by 403 with a reason.
fn kind(status: u16, reason: &str) -> ErrorKind {
    match (status, reason) {
        (429, _) => ErrorKind::Throttled,
        (
            403,
            "rateLimitExceeded" | "userRateLimitExceeded" | "quotaExceeded" | "RATE_LIMIT_EXCEEDED",
        ) => ErrorKind::Throttled,
        (401 | 403 | 407, _) => ErrorKind::Auth,
        (404, _) => ErrorKind::UnknownGroup,
        (400, _) => ErrorKind::BadConfig,
        _ => ErrorKind::Retryable,
    }
}

/// The error of credentials that give no token.
fn no_token(error: &Error) -> PluginError {
    let mut is_transient = false;
    // The crate wraps its error into what it concludes from it.
    let mut first: &(dyn std::error::Error + 'static) = error;
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(credentials) = cause.downcast_ref::<CredentialsError>() {
            is_transient |= credentials.is_transient();
            first = cause;
        }
        source = cause.source();
    }
    let mut why = with_causes(first);
    for conclusion in [
        " but future attempts may succeed",
        " and future attempts will not succeed",
    ] {
        why = why.replace(conclusion, "");
    }
    // A server of tokens that is out of order is not what another login mends.
    let kind = match is_transient {
        true => ErrorKind::Retryable,
        false => ErrorKind::Auth,
    };
    PluginError::new(kind, format!("no access token: {why}"))
}

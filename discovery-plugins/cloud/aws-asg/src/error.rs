//! Classification of failed calls.

use std::{error::Error, time::Duration};

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::{
    orchestrator::HttpResponse,
    result::{ConnectorError, SdkError},
};
use elasticrun_plugin_sdk::{
    ErrorKind, PluginError,
    text::{one_line, with_causes},
};

use crate::pace::INTERVAL;

/// Error codes of denied access.
const AUTH: &[&str] = &[
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "Blocked",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "MissingAuthenticationToken",
    "NotAuthorized",
    "OptInRequired",
    "PendingVerification",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
];
/// Error codes of rate limits.
const THROTTLED: &[&str] = &[
    "EC2ThrottledException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "ResourceContention",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
];

/// The error of a failed call. `call` is the operation, `place` the region.
pub(crate) fn classify<E>(call: &str, place: &str, error: SdkError<E, HttpResponse>) -> PluginError
where
    E: aws_sdk_ec2::error::ProvideErrorMetadata + Error + 'static,
{
    match &error {
        SdkError::ServiceError(service) => {
            let (code, message) = (service.err().code(), service.err().message());
            let code = code.unwrap_or("an error without a code");
            let kind = error_kind(code);
            let why = short_message(message.unwrap_or_default());
            let advice = match kind {
                ErrorKind::Auth => "; see docs/aws.md for the permissions that are needed",
                _ => "",
            };
            let mut failure =
                PluginError::new(kind, format!("{call} in {place}: {code}: {why}{advice}"));
            if kind == ErrorKind::Throttled {
                failure.retry_after = Some(requested_pause(service.raw()).unwrap_or(INTERVAL));
            }
            failure
        }
        other => match cause::<CredentialsError>(other) {
            Some(why) => no_credentials(why),
            None => unreachable(call, place, other),
        },
    }
}

fn error_kind(code: &str) -> ErrorKind {
    if AUTH.contains(&code) {
        ErrorKind::Auth
    } else if THROTTLED.contains(&code) {
        ErrorKind::Throttled
    } else if code.starts_with("InvalidParameter") || code == "ValidationError" {
        ErrorKind::BadConfig
    } else {
        ErrorKind::Retryable
    }
}

fn no_credentials(why: &CredentialsError) -> PluginError {
    match why {
        CredentialsError::CredentialsNotLoaded(_) => PluginError::new(
            ErrorKind::Auth,
            "no AWS credentials were found; set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run where an instance \
             role is",
        ),
        // A provider exists but fails. The failure may be temporary.
        CredentialsError::ProviderTimedOut(_) | CredentialsError::ProviderError(_) => {
            PluginError::retryable(format!(
                "AWS credentials cannot be had: {}",
                with_causes(why)
            ))
        }
        _ => PluginError::new(
            ErrorKind::Auth,
            format!("AWS credentials cannot be used: {}", with_causes(why)),
        ),
    }
}

fn unreachable(call: &str, place: &str, error: &(dyn Error + 'static)) -> PluginError {
    let why = match cause::<ConnectorError>(error) {
        Some(connector) => with_causes(connector),
        None => with_causes(error),
    };
    PluginError::retryable(format!(
        "{call} in {place} has no answer: {why}; is the region's name right and the network up?"
    ))
}

/// The pause that a throttling service requests. AWS's header is in milliseconds, HTTP's in seconds.
fn requested_pause(response: &HttpResponse) -> Option<Duration> {
    let number = |name: &str| response.headers().get(name)?.trim().parse().ok();
    let millis = number("x-amz-retry-after").map(Duration::from_millis);
    millis.or_else(|| number("retry-after").map(Duration::from_secs))
}

/// The first error of a type, among the error and its causes.
fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The message of a service as one line. EC2 appends an encoded message of a thousand characters to a refusal.
fn short_message(text: &str) -> String {
    let coded = text.find("Encoded authorization failure message");
    one_line(&text[..coded.unwrap_or(text.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_a_kind() {
        for (code, kind) in [
            ("UnauthorizedOperation", ErrorKind::Auth),
            ("ExpiredToken", ErrorKind::Auth),
            ("RequestLimitExceeded", ErrorKind::Throttled),
            ("Throttling", ErrorKind::Throttled),
            ("ValidationError", ErrorKind::BadConfig),
            ("InvalidParameterValue", ErrorKind::BadConfig),
            ("InternalFailure", ErrorKind::Retryable),
            ("ServiceUnavailable", ErrorKind::Retryable),
        ] {
            assert_eq!(error_kind(code), kind, "{code}");
        }
    }

    #[test]
    fn a_message_is_one_short_line() {
        let long = "You are not authorized.\nEncoded authorization failure message: xK3".to_owned();
        assert_eq!(
            short_message(&(long + &"x".repeat(900))),
            "You are not authorized."
        );
        assert_eq!(short_message(&"é".repeat(400)).chars().count(), 303);
    }
}

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
/// Those of credentials that were valid once.
const EXPIRED: &[&str] = &["ExpiredToken", "ExpiredTokenException"];
/// Bytes of an answer that an error quotes from, at most.
const MAX_BODY: usize = 1000;
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
            let Some(code) = code else {
                return without_code(call, place, service.raw());
            };
            let kind = error_kind(code);
            let why = short_message(message.unwrap_or_default());
            let advice = match kind {
                ErrorKind::Auth if EXPIRED.contains(&code) => "; renew the credentials",
                ErrorKind::Auth => "; see docs/aws.md for the permissions that are needed",
                _ => "",
            };
            let text = format!("{call} in {place}: {code}: {why}{advice}");
            with_pause(PluginError::new(kind, text), service.raw())
        }
        SdkError::ResponseError(answer) => without_code(call, place, answer.raw()),
        other => match cause::<CredentialsError>(other) {
            Some(why) => no_credentials(why),
            None => unreachable(call, place, other),
        },
    }
}

/// An answer that is none of AWS, as of a proxy or a load balancer.
fn without_code(call: &str, place: &str, answer: &HttpResponse) -> PluginError {
    let status = answer.status().as_u16();
    let body = answer.body().bytes().unwrap_or_default();
    let body = String::from_utf8_lossy(&body[..body.len().min(MAX_BODY)]);
    let kind = match status {
        401 | 403 | 407 => ErrorKind::Auth,
        429 | 503 => ErrorKind::Throttled,
        _ => ErrorKind::Retryable,
    };
    let text = format!(
        "{call} in {place}: no answer of AWS, but HTTP status {status}: {}",
        one_line(body.trim())
    );
    with_pause(PluginError::new(kind, text), answer)
}

/// Adds the pause to an error of a rate limit.
fn with_pause(mut failure: PluginError, answer: &HttpResponse) -> PluginError {
    if failure.kind == ErrorKind::Throttled {
        failure.retry_after = Some(requested_pause(answer).unwrap_or(INTERVAL));
    }
    failure
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
        _ => {
            let why = with_causes(why);
            // The SDK asks for another build of it here, which a user cannot give.
            let advice = match why.contains("credentials-login") {
                true => {
                    "; for a profile of `aws login`, run eval \"$(aws configure export-credentials --format env)\""
                }
                false => "",
            };
            let text = format!("AWS credentials cannot be used: {why}{advice}");
            PluginError::new(ErrorKind::Auth, text)
        }
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

//! Requests with a deadline.

use std::{sync::Arc, time::Instant};

use elasticrun_plugin_sdk::PluginError;
use serde_json::Value;
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
};

use crate::error::{late, unreachable};

/// Size limit of an answer. A list of 500 instances has about 2 MiB.
const MAX_BODY: u64 = 64 << 20;

/// A client with the system's root certificates.
pub fn agent() -> Agent {
    let roots = rustls_native_certs::load_native_certs().certs;
    let roots: Vec<_> = roots
        .iter()
        .map(|root| Certificate::from_der(root).to_owned())
        .collect();
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    Agent::config_builder()
        .tls_config(tls)
        .user_agent(concat!("elasticrun/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .into()
}

/// The method and body of a request.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// GET.
    Get,
    /// POST without a body.
    Post,
    /// POST of form fields.
    Form(&'a [(&'a str, &'a str)]),
}

/// An answer of a server.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The requested pause in seconds, if any.
    pub retry_after: Option<u64>,
    /// The JSON body, or null.
    pub body: Value,
}

/// Sends a request and waits for the answer until `until`.
///
/// # Errors
/// The server did not answer.
pub fn ask(
    agent: &Agent,
    url: &str,
    ask: &Ask<'_>,
    headers: &[(&str, &str)],
    until: Instant,
) -> Result<Answer, PluginError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late(url));
    }
    let answer = match ask {
        Ask::Get => {
            let request = agent.get(url).config().timeout_global(Some(left)).build();
            headers
                .iter()
                .fold(request, |request, (name, value)| {
                    request.header(*name, *value)
                })
                .call()
        }
        Ask::Post | Ask::Form(_) => {
            let request = agent.post(url).config().timeout_global(Some(left)).build();
            let request = headers.iter().fold(request, |request, (name, value)| {
                request.header(*name, *value)
            });
            match ask {
                Ask::Form(fields) => request.send_form(fields.iter().copied()),
                _ => request.send_empty(),
            }
        }
    };
    let mut answer = answer.map_err(|error| unreachable(url, &error))?;
    let retry_after = answer.headers().get("retry-after");
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let body = answer
        .body_mut()
        .with_config()
        .limit(MAX_BODY)
        .read_to_vec();
    let body = body.map_err(|error| unreachable(url, &error))?;
    Ok(Answer {
        status: answer.status().as_u16(),
        retry_after,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

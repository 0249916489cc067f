//! Requests with a deadline.

use std::{sync::Arc, time::Instant};

use elasticrun_plugin_sdk::PluginError;
use serde_json::Value;
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
};

use crate::error::{late, unreachable};

/// Size limit of an answer.
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

/// An answer of a server.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The JSON body, or null.
    pub body: Value,
}

/// Sends a GET request and waits for the answer until `until`.
///
/// # Errors
/// The server did not answer.
pub fn get(agent: &Agent, url: &str, until: Instant) -> Result<Answer, PluginError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late(url));
    }
    let request = agent.get(url).config().timeout_global(Some(left)).build();
    let mut answer = request.call().map_err(|error| unreachable(url, &error))?;
    let body = answer.body_mut().with_config().limit(MAX_BODY);
    let body = body.read_to_vec();
    let body = body.map_err(|error| unreachable(url, &error))?;
    Ok(Answer {
        status: answer.status().as_u16(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

//! Requests to a metadata service over plain HTTP.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, Uri, header::ETAG};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::time::timeout;

/// The longest answer in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Why a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("it does not answer within {0:?}")]
    Slow(Duration),
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it answers with status {0}")]
    Status(StatusCode),
    #[error("its answer cannot be read: {0}")]
    Unreadable(String),
}

/// An answer with a success status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) etag: Option<String>,
}

/// One metadata service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
}

impl Service {
    pub(crate) fn new(base: &Uri) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(Duration::from_secs(2)));
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            base: base.to_string().trim_end_matches('/').to_owned(),
        }
    }

    /// Sends a request. Returns `None` for status 404.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: String,
        limit: Duration,
    ) -> Result<Option<Answer>, Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::from(body))
            .map_err(|error| Error::Unreachable(error.to_string()))?;
        timeout(limit, self.answer(request))
            .await
            .map_err(|_| Error::Slow(limit))?
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Option<Answer>, Error> {
        let response = self.client.request(request).await;
        let response = response.map_err(|error| {
            let source = std::error::Error::source(&error);
            Error::Unreachable(source.map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(Error::Status(status));
        }
        let etag = response
            .headers()
            .get(ETAG)
            .and_then(|value| value.to_str().ok());
        let etag = etag.map(str::to_owned);
        let body = Limited::new(response.into_body(), MAX_ANSWER)
            .collect()
            .await;
        let body = body
            .map_err(|error| Error::Unreadable(error.to_string()))?
            .to_bytes();
        let text = String::from_utf8(body.to_vec())
            .map_err(|error| Error::Unreadable(error.to_string()))?;
        Ok(Some(Answer { text, etag }))
    }

    /// Gets a path. Returns `None` for status 404.
    pub(crate) async fn get(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
        limit: Duration,
    ) -> Result<Option<Answer>, Error> {
        self.request(Method::GET, path, headers, String::new(), limit)
            .await
    }
}

/// Logs once when a source stops answering, and once when it answers again (N2).
#[derive(Debug)]
pub(crate) struct Reachability {
    name: &'static str,
    is_reachable: bool,
}

impl Reachability {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            is_reachable: true,
        }
    }

    /// Records the result of a request, and logs a change.
    pub(crate) fn record<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => {
                if !std::mem::replace(&mut self.is_reachable, true) {
                    tracing::info!("{} answers again", self.name);
                }
                Some(value)
            }
            Err(error) => {
                if std::mem::replace(&mut self.is_reachable, false) {
                    let name = self.name;
                    tracing::warn!("no notices from {name} until it answers again: {error}");
                }
                None
            }
        }
    }
}

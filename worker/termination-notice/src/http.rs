//! Requests to a metadata service: plain HTTP, small answers.

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
const LONGEST: usize = 1 << 20;

/// Why there is no answer.
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

/// An answer with a good status.
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
    pub(crate) fn at(base: &Uri) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(Duration::from_secs(2)));
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            base: base.to_string().trim_end_matches('/').to_owned(),
        }
    }

    /// The answer to a request, or None if nothing is there (404).
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: String,
        patience: Duration,
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
        timeout(patience, self.answer(request))
            .await
            .map_err(|_| Error::Slow(patience))?
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
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body
            .map_err(|error| Error::Unreadable(error.to_string()))?
            .to_bytes();
        let text = String::from_utf8(body.to_vec())
            .map_err(|error| Error::Unreadable(error.to_string()))?;
        Ok(Some(Answer { text, etag }))
    }

    /// The text at a path, or None if nothing is there.
    pub(crate) async fn get(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
        patience: Duration,
    ) -> Result<Option<Answer>, Error> {
        self.ask(Method::GET, path, headers, String::new(), patience)
            .await
    }
}

/// Says once when a source stops answering, and once when it answers again (N2).
#[derive(Debug)]
pub(crate) struct Reachable {
    name: &'static str,
    is: bool,
}

impl Reachable {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, is: true }
    }

    pub(crate) fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => {
                if !std::mem::replace(&mut self.is, true) {
                    tracing::info!("{} answers again", self.name);
                }
                Some(value)
            }
            Err(error) => {
                if std::mem::replace(&mut self.is, false) {
                    let name = self.name;
                    tracing::warn!("no notices from {name} until it answers again: {error}");
                }
                None
            }
        }
    }
}

//! Requests to one endpoint.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    Options,
    error::{Attempt, Code, Error},
    values::Values,
};

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(1);

/// How long the end of a stream is awaited after its value.
const END: Duration = Duration::from_millis(50);

/// The way to all endpoints. A clone shares the connections.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    scheme: &'static str,
}

impl Transport {
    pub(crate) fn new(options: &Options) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT.min(options.deadline)));
        let tls = options.tls.as_ref().map(|tls| tls.0.clone());
        let is_secure = tls.is_some();
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls.unwrap_or_else(no_roots));
        let builder = if is_secure {
            builder.https_only()
        } else {
            builder.https_or_http()
        };
        let connector = builder.enable_http1().wrap_connector(tcp);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            scheme: if is_secure { "https" } else { "http" },
        }
    }

    /// Sends a request and waits for the head of the answer. There is no deadline.
    pub(crate) async fn post(
        &self,
        endpoint: &str,
        path: &str,
        token: Option<&str>,
        body: &Value,
    ) -> Result<Answer, Error> {
        let mut request = Request::post(format!("{}://{endpoint}/v3/{path}", self.scheme))
            .header(CONTENT_TYPE, "application/json")
            // A member that has lost its leader ends streams, rather than being silent.
            .header("Grpc-Metadata-hasleader", "true");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let attempt = |why: String| Attempt {
            endpoint: endpoint.into(),
            why,
        };
        let request = request
            .body(Full::from(body.to_string()))
            .map_err(|error| Error::Unreachable(vec![attempt(error.to_string())]))?;
        let response = self.client.request(request).await.map_err(|error| {
            let why = attempt(reason(&error));
            if error.is_connect() {
                Error::Unreachable(vec![why])
            } else {
                Error::NoAnswer(why)
            }
        })?;
        let (head, body) = response.into_parts();
        Ok(Answer {
            endpoint: endpoint.into(),
            status: head.status,
            body,
            values: Values::default(),
        })
    }
}

/// Plain http needs no roots.
fn no_roots() -> rustls::ClientConfig {
    rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring has the suites of both versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

/// The innermost reason of an error: the outer ones say that there was one.
fn reason(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// An answer whose values come one by one.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) endpoint: String,
    status: StatusCode,
    body: Incoming,
    values: Values,
}

/// An error as the gateway writes it, for requests and within streams.
#[derive(Debug, Deserialize)]
struct GatewayError {
    #[serde(alias = "grpc_code", default)]
    code: i64,
    #[serde(default)]
    message: String,
}

impl Answer {
    /// The next value, or `None` at the end of the answer. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Error> {
        loop {
            if let Some(value) = self.values.next().map_err(|error| self.unreadable(error))? {
                return self.check(value).map(Some);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.values.extend(bytes);
                    }
                }
                Some(Err(error)) => return Err(self.no_answer(reason(&error))),
                None => {
                    let end = self.values.end();
                    end.map_err(|error| self.no_answer(error.to_string()))?;
                    return Ok(None);
                }
            }
        }
    }

    /// The only value of an answer. Reads to its end, so that the connection can be used again.
    pub(crate) async fn only<T: for<'de> Deserialize<'de>>(mut self) -> Result<T, Error> {
        let value = self.next().await?;
        let value = value.ok_or_else(|| self.unreadable("its answer is empty"))?;
        if self.next().await?.is_some() {
            return Err(self.unreadable("its answer has several values"));
        }
        self.read(value)
    }

    /// The first value of a stream that ends by itself. The end is awaited for a moment, so that the connection can be used
    /// again; a stream that goes on is dropped.
    pub(crate) async fn first<T: for<'de> Deserialize<'de>>(mut self) -> Result<T, Error> {
        let value = self.next().await?;
        let value = value.ok_or_else(|| self.unreadable("its answer is empty"))?;
        let _ = timeout(END, self.next()).await;
        self.read(value)
    }

    /// A value of the answer as what it should be.
    pub(crate) fn read<T: for<'de> Deserialize<'de>>(&self, value: Value) -> Result<T, Error> {
        serde_json::from_value(value).map_err(|error| self.unreadable(error))
    }

    /// The value of a stream's element, or the error that it is.
    fn check(&self, mut value: Value) -> Result<Value, Error> {
        if let Some(result) = value.get_mut("result") {
            return Ok(result.take());
        }
        // Within a stream the error is an object in the value. For a request it is the value.
        let error = value.get_mut("error").filter(|error| error.is_object());
        let error = match error.map(Value::take) {
            Some(error) => error,
            None if self.status.is_success() && value.get("error").is_none() => return Ok(value),
            None if value.get("message").is_none() => return Err(self.unreadable("")),
            None => value,
        };
        let error: GatewayError = self.read(error)?;
        Err(Error::Etcd {
            endpoint: self.endpoint.clone(),
            code: Code(error.code),
            message: error.message,
        })
    }

    pub(crate) fn no_answer(&self, why: impl ToString) -> Error {
        Error::NoAnswer(self.attempt(why))
    }

    fn unreadable(&self, why: impl ToString) -> Error {
        let status = self.status;
        if status.is_success() {
            return Error::Unreadable(self.attempt(why));
        }
        Error::Unreadable(self.attempt(format!("it answers with status {status}")))
    }

    fn attempt(&self, why: impl ToString) -> Attempt {
        Attempt {
            endpoint: self.endpoint.clone(),
            why: why.to_string(),
        }
    }
}

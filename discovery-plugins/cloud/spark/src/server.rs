//! A web page of Spark, which answers in JSON.

use std::{fmt, time::Instant};

use elasticrun_plugin_http::{agent, get};
use elasticrun_plugin_sdk::{ErrorKind, PluginError};
use serde::de::DeserializeOwned;
use ureq::Agent;

/// A web page of Spark.
#[derive(Debug)]
pub(crate) struct Server {
    agent: Agent,
    /// The address, without a trailing slash.
    url: String,
}

impl Server {
    /// # Errors
    /// The address is no HTTP URL.
    pub(crate) fn new(option: &str, url: &str) -> Result<Self, PluginError> {
        let url = url.trim_end_matches('/');
        let after = (url.strip_prefix("http://")).or_else(|| url.strip_prefix("https://"));
        if after.is_none_or(|host| host.is_empty() || host.contains(char::is_whitespace)) {
            let why =
                format!("{option}: {url:?} is no address of a page, such as http://host:8080");
            return Err(PluginError::bad_config(why));
        }
        Ok(Self {
            agent: agent(),
            url: url.to_owned(),
        })
    }

    /// The answer at a path, which starts with a slash.
    ///
    /// # Errors
    /// There is no answer, it is an error, or it cannot be parsed.
    pub(crate) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        until: Instant,
    ) -> Result<T, PluginError> {
        let url = format!("{}{path}", self.url);
        let answer = get(&self.agent, &url, until)?;
        let kind = match answer.status {
            200 => {
                return serde_json::from_value(answer.body).map_err(|error| {
                    PluginError::retryable(format!("{url} is no page of Spark's: {error}"))
                });
            }
            401 | 403 => ErrorKind::Auth,
            404 => ErrorKind::UnknownGroup,
            429 => ErrorKind::Throttled,
            _ => ErrorKind::Retryable,
        };
        let status = answer.status;
        Err(PluginError::new(kind, format!("{url}: status {status}")))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

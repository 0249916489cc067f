//! The executors of an application.

use std::collections::BTreeMap;

use elasticrun_plugin_sdk::HostState;
use serde::Deserialize;

use crate::lent::{Lent, Resource, gpus};

/// One of those that a page shows.
#[derive(Debug, Deserialize)]
pub(crate) struct Application {
    pub(crate) id: String,
}

/// What the application was started with.
#[derive(Debug, Deserialize)]
pub(crate) struct Environment {
    #[serde(rename = "sparkProperties")]
    properties: Vec<(String, String)>,
}

impl Environment {
    /// A number among Spark's settings.
    pub(crate) fn number(&self, key: &str) -> Option<u32> {
        let (_, value) = self.properties.iter().find(|(name, _)| name == key)?;
        value.parse().ok()
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Executor {
    id: String,
    /// Of the driver, and of an executor that has gone, it may be anything.
    host_port: String,
    is_active: bool,
    total_cores: u32,
    /// By too many failures, with `spark.excludeOnFailure.enabled`.
    #[serde(default)]
    is_excluded: bool,
    #[serde(default)]
    resources: BTreeMap<String, Resource>,
}

impl Executor {
    /// What it lends; the driver lends nothing.
    pub(crate) fn lent(self) -> Option<Lent> {
        if self.id == "driver" || !self.is_active {
            return None;
        }
        let (host, _) = self.host_port.rsplit_once(':')?;
        let (state, reason) = match self.is_excluded {
            false => (HostState::Ready, None),
            true => (
                HostState::Pending,
                Some(format!("Spark excludes its executor {}", self.id)),
            ),
        };
        Some(Lent {
            host: host.trim_matches(['[', ']']).to_owned(),
            cores: self.total_cores,
            gpus: gpus(&self.resources),
            state,
            reason,
        })
    }
}

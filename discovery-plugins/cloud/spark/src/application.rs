//! The executors of an application.

use std::collections::BTreeMap;

use elasticrun_plugin_sdk::HostState;
use serde::Deserialize;

use crate::executor_resources::{ExecutorResources, Resource, gpus};

/// An application in the list of a page.
#[derive(Debug, Deserialize)]
pub(crate) struct Application {
    pub(crate) id: String,
}

/// The settings of the application.
#[derive(Debug, Deserialize)]
pub(crate) struct Environment {
    #[serde(rename = "sparkProperties")]
    properties: Vec<(String, String)>,
}

impl Environment {
    /// The value of a numeric setting.
    pub(crate) fn number(&self, key: &str) -> Option<u32> {
        let (_, value) = self.properties.iter().find(|(name, _)| name == key)?;
        value.parse().ok()
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Executor {
    id: String,
    /// May be arbitrary for the driver and for an executor that has ended.
    host_port: String,
    is_active: bool,
    total_cores: u32,
    /// Excluded after too many failures, with `spark.excludeOnFailure.enabled`.
    #[serde(default)]
    is_excluded: bool,
    #[serde(default)]
    resources: BTreeMap<String, Resource>,
}

impl Executor {
    /// Its resources. `None` for the driver and for an inactive executor.
    pub(crate) fn into_resources(self) -> Option<ExecutorResources> {
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
        Some(ExecutorResources {
            host: host.trim_matches(['[', ']']).to_owned(),
            cores: self.total_cores,
            gpus: gpus(&self.resources),
            state,
            reason,
        })
    }
}

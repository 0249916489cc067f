//! The workers of a standalone master.

use std::collections::BTreeMap;

use elasticrun_plugin_sdk::HostState;
use serde::Deserialize;

use crate::executor_resources::{ExecutorResources, Resource, gpus};

/// The page of the master.
#[derive(Debug, Deserialize)]
pub(crate) struct Master {
    workers: Vec<Worker>,
}

#[derive(Debug, Deserialize)]
struct Worker {
    host: String,
    cores: u32,
    state: String,
    #[serde(default)]
    resources: BTreeMap<String, Resource>,
}

impl Master {
    /// The resources of each worker. The master lists ended workers for a while, with a state that is skipped here.
    pub(crate) fn resources(self) -> Vec<ExecutorResources> {
        let resources = |worker: Worker| {
            let (state, reason) = match worker.state.as_str() {
                "ALIVE" => (HostState::Ready, None),
                "DECOMMISSIONED" => (HostState::Draining, Some("its worker is decommissioned")),
                "UNKNOWN" => (
                    HostState::Pending,
                    Some("the master does not know its worker yet"),
                ),
                _ => return None,
            };
            Some(ExecutorResources {
                host: worker.host,
                cores: worker.cores,
                gpus: gpus(&worker.resources),
                state,
                reason: reason.map(str::to_owned),
            })
        };
        self.workers.into_iter().filter_map(resources).collect()
    }
}

//! The workers of a standalone master.

use std::collections::BTreeMap;

use elasticrun_plugin_sdk::HostState;
use serde::Deserialize;

use crate::lent::{Lent, Resource, gpus};

/// What the master's page says.
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
    /// What each worker lends. One that has gone, or left and come back, is listed with a state for a while.
    pub(crate) fn lent(self) -> Vec<Lent> {
        let lent = |worker: Worker| {
            let (state, reason) = match worker.state.as_str() {
                "ALIVE" => (HostState::Ready, None),
                "DECOMMISSIONED" => (HostState::Draining, Some("its worker is decommissioned")),
                "UNKNOWN" => (
                    HostState::Pending,
                    Some("the master does not know its worker yet"),
                ),
                _ => return None,
            };
            Some(Lent {
                host: worker.host,
                cores: worker.cores,
                gpus: gpus(&worker.resources),
                state,
                reason: reason.map(str::to_owned),
            })
        };
        self.workers.into_iter().filter_map(lent).collect()
    }
}

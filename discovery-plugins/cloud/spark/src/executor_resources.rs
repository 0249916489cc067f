//! Resources of Spark workers and executors, and their hosts.

use std::collections::BTreeMap;

use elasticrun_plugin_sdk::{Host, HostState, SlotsFrom};
use serde::Deserialize;

/// A resource such as GPUs, with its addresses.
#[derive(Debug, Deserialize)]
pub(crate) struct Resource {
    #[serde(default)]
    addresses: Vec<String>,
}

/// Resources of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerTask {
    pub(crate) cpus: u32,
    pub(crate) gpus: u32,
}

/// The resources of a worker or an executor.
#[derive(Debug)]
pub(crate) struct ExecutorResources {
    pub(crate) host: String,
    pub(crate) cores: u32,
    pub(crate) gpus: u32,
    pub(crate) state: HostState,
    pub(crate) reason: Option<String>,
}

/// The number of GPUs among resources.
pub(crate) fn gpus(resources: &BTreeMap<String, Resource>) -> u32 {
    resources
        .get("gpu")
        .map_or(0, |gpu| gpu.addresses.len() as u32)
}

/// Groups resources by host. `slots` overrides the slots of each host.
pub(crate) fn hosts(
    resources: Vec<ExecutorResources>,
    per_task: PerTask,
    slots: Option<u32>,
) -> Vec<Host> {
    let mut hosts: BTreeMap<String, Vec<ExecutorResources>> = BTreeMap::new();
    for each in resources {
        hosts.entry(each.host.clone()).or_default().push(each);
    }
    let host = |(name, resources): (String, Vec<ExecutorResources>)| {
        // The best state counts: a host with two workers stays while one of them is usable.
        let best = resources
            .iter()
            .map(|each| each.state)
            .min()
            .unwrap_or_default();
        let usable = || resources.iter().filter(|each| each.state == best);
        let gpus: u32 = usable().map(|each| each.gpus).sum();
        let (slots, from) = match (slots, gpus / per_task.gpus) {
            (Some(slots), _) => (slots, SlotsFrom::Explicit),
            (None, 0) => (
                usable().map(|each| each.cores / per_task.cpus).sum(),
                SlotsFrom::Other,
            ),
            (None, slots) => (slots, SlotsFrom::Accelerators),
        };
        (slots > 0).then(|| Host {
            slots: Some(slots),
            slots_from: Some(from),
            state: best,
            reason: usable().find_map(|each| each.reason.clone()),
            ..Host::new(name)
        })
    };
    hosts.into_iter().filter_map(host).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{application::Executor, master::Master};

    fn worker(host: &str, state: &str, gpus: &[&str]) -> Value {
        let gpus = json!({"gpu": {"name": "gpu", "addresses": gpus}});
        json!({"id": "worker-1", "host": host, "cores": 5, "state": state, "resources": gpus})
    }

    fn executor(id: &str, host_port: &str, cores: u32, gpus: &[&str]) -> Value {
        let gpus = json!({"gpu": {"name": "gpu", "addresses": gpus}});
        json!({
            "id": id, "hostPort": host_port, "isActive": true, "totalCores": cores, "isExcluded": id == "7",
            "resources": gpus
        })
    }

    fn master_hosts(workers: &[Value], cpus: u32, slots: Option<u32>) -> Vec<Host> {
        let master: Master = serde_json::from_value(json!({"workers": workers})).unwrap();
        hosts(master.resources(), PerTask { cpus, gpus: 1 }, slots)
    }

    fn seen(hosts: &[Host]) -> Vec<(&str, Option<u32>, HostState)> {
        hosts
            .iter()
            .map(|host| (host.id.as_str(), host.slots, host.state))
            .collect()
    }

    #[test]
    fn workers_of_a_master() {
        let workers = [
            worker("a", "ALIVE", &[]),
            worker("b", "DECOMMISSIONED", &[]),
            worker("c", "DEAD", &[]),
            // It was restarted, and the master still lists the old entry.
            worker("d", "DEAD", &[]),
            worker("d", "ALIVE", &["0", "1"]),
        ];
        use HostState::{Draining, Ready};
        let found = master_hosts(&workers, 2, None);
        assert_eq!(
            seen(&found),
            [
                ("a", Some(2), Ready),
                ("b", Some(2), Draining),
                ("d", Some(2), Ready)
            ]
        );
        assert_eq!(found[2].slots_from, Some(SlotsFrom::Accelerators));
        assert_eq!(
            found[1].reason.as_deref(),
            Some("its worker is decommissioned")
        );
        assert!(
            (master_hosts(&workers, 2, Some(4)).iter())
                .all(|host| host.slots == Some(4) && host.slots_from == Some(SlotsFrom::Explicit))
        );
        // A worker without resources for a slot is no host.
        assert_eq!(
            seen(&master_hosts(&workers, 6, None)),
            [("d", Some(2), Ready)]
        );
    }

    #[test]
    fn executors_of_an_application() {
        let executors = json!([
            executor("driver", "x:1", 0, &[]),
            executor("1", "a:4000", 2, &[]),
            executor("2", "a:4001", 4, &[]),
            executor("3", "[fd00::3]:4000", 2, &[]),
            executor("7", "b:4000", 2, &[]),
            executor("8", "c:4000", 2, &["0", "1"]),
        ]);
        let executors: Vec<Executor> = serde_json::from_value(executors).unwrap();
        let resources: Vec<ExecutorResources> = executors
            .into_iter()
            .filter_map(Executor::into_resources)
            .collect();
        let found = hosts(resources, PerTask { cpus: 2, gpus: 2 }, None);
        use HostState::{Pending, Ready};
        assert_eq!(
            seen(&found),
            [
                ("a", Some(3), Ready),
                ("b", Some(1), Pending),
                ("c", Some(1), Ready),
                ("fd00::3", Some(1), Ready)
            ]
        );
        assert_eq!(
            found[1].reason.as_deref(),
            Some("Spark excludes its executor 7")
        );
    }
}

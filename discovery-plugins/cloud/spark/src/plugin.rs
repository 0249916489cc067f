//! The plugin.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{
    ErrorKind, Host, HostState, Manifest, Plugin, PluginError, SlotsFrom, Snapshot,
    slots::check_option,
};
use serde::Deserialize;

use crate::{
    application::{Application, Environment, Executor},
    master::{Master, Resource},
    server::Server,
};

/// From a poll to the next: one small answer.
const INTERVAL: Duration = Duration::from_secs(5);

/// Whose hosts, and how they are used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The page of a standalone master.
    pub master: Option<String>,
    /// The page of an application.
    pub ui: Option<String>,
    /// Cores of a slot.
    pub cpus: Option<u32>,
    /// Slots of every host.
    pub slots: Option<u32>,
}

/// The hosts of a Spark cluster.
#[derive(Debug)]
pub struct Spark {
    options: Options,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Master(Server),
    Application {
        page: Server,
        /// Once it was asked for.
        known: Option<Known>,
    },
}

/// What does not change while an application runs.
#[derive(Debug)]
struct Known {
    id: String,
    per_task: PerTask,
}

/// What a slot takes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PerTask {
    cpus: u32,
    gpus: u32,
}

/// What a worker or an executor lends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lent {
    pub(crate) host: String,
    pub(crate) cores: u32,
    pub(crate) gpus: u32,
    pub(crate) state: HostState,
    pub(crate) reason: Option<String>,
}

impl Plugin for Spark {
    const MANIFEST: Manifest = Manifest {
        name: "spark",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "the workers of a Spark master, master=http://HOST:8080, or the executors of an application, ui=http://HOST:4040",
        config: include_str!("options.json"),
        environment: &[
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "NO_PROXY",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
        ],
        permissions: &["to read the page of the master or of the application"],
    };

    type Config = Options;

    fn create(options: Options) -> Result<Self, PluginError> {
        check_option(options.slots)?;
        if options.cpus == Some(0) {
            return Err(PluginError::bad_config("cpus: must be at least 1"));
        }
        let source = match (&options.master, &options.ui) {
            (Some(url), None) if url.starts_with("spark://") => {
                let why = format!(
                    "master: {url:?} is where programs connect; expected the master's page, such as http://host:8080"
                );
                return Err(PluginError::bad_config(why));
            }
            (Some(url), None) => Source::Master(Server::new("master", url)?),
            (None, Some(url)) => Source::Application {
                page: Server::new("ui", url)?,
                known: None,
            },
            _ => {
                return Err(PluginError::bad_config(
                    "give either master=http://HOST:8080 or ui=http://HOST:4040",
                ));
            }
        };
        Ok(Self { options, source })
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError> {
        let until = Instant::now() + deadline;
        let (lent, per_task) = self.source.lent(until)?;
        Ok(Snapshot {
            next_poll: Some(INTERVAL),
            ..Snapshot::new(hosts(lent, per_task, &self.options))
        })
    }
}

impl Source {
    fn lent(&mut self, until: Instant) -> Result<(Vec<Lent>, PerTask), PluginError> {
        match self {
            Self::Master(page) => {
                let master: Master = page.get("/json/", until)?;
                Ok((master.lent(), PerTask { cpus: 1, gpus: 1 }))
            }
            Self::Application { page, known } => {
                let found = match known.take() {
                    Some(found) => found,
                    None => Known::ask(page, until)?,
                };
                let path = format!("/api/v1/applications/{}/executors", found.id);
                // Another application may be there at the next poll, as where a notebook began anew.
                let executors: Vec<Executor> = page.get(&path, until)?;
                let per_task = found.per_task;
                *known = Some(found);
                let lent = executors.into_iter().filter_map(Executor::lent);
                Ok((lent.collect(), per_task))
            }
        }
    }
}

impl Known {
    fn ask(page: &Server, until: Instant) -> Result<Self, PluginError> {
        let applications: Vec<Application> = page.get("/api/v1/applications", until)?;
        let Some(Application { id }) = applications.into_iter().next() else {
            let why = format!("{page} shows no application");
            return Err(PluginError::new(ErrorKind::UnknownGroup, why));
        };
        let path = format!("/api/v1/applications/{id}/environment");
        let environment: Environment = page.get(&path, until)?;
        let number = |key| environment.number(key).unwrap_or(1).max(1);
        let per_task = PerTask {
            cpus: number("spark.task.cpus"),
            gpus: number("spark.task.resource.gpu.amount"),
        };
        Ok(Self { id, per_task })
    }
}

/// How many GPUs are among resources.
pub(crate) fn gpus(resources: &BTreeMap<String, Resource>) -> u32 {
    resources
        .get("gpu")
        .map_or(0, |gpu| gpu.addresses.len() as u32)
}

/// Hosts of what is lent: one host for all that is of one.
fn hosts(lent: Vec<Lent>, per_task: PerTask, options: &Options) -> Vec<Host> {
    let mut hosts: BTreeMap<String, Vec<Lent>> = BTreeMap::new();
    for each in lent {
        hosts.entry(each.host.clone()).or_default().push(each);
    }
    let host = |(name, lent): (String, Vec<Lent>)| {
        // What is best: a host with two workers stays while one of them is usable.
        let best = lent.iter().map(|each| each.state).min().unwrap_or_default();
        let usable = || lent.iter().filter(|each| each.state == best);
        let gpus: u32 = usable().map(|each| each.gpus).sum();
        let cpus = options.cpus.unwrap_or(per_task.cpus);
        let (slots, from) = match (options.slots, gpus / per_task.gpus) {
            (Some(slots), _) => (slots, SlotsFrom::Explicit),
            (None, 0) => (
                usable().map(|each| each.cores / cpus).sum(),
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

    fn of_master(workers: &[Value], options: &Options) -> Vec<Host> {
        let master: Master = serde_json::from_value(json!({"workers": workers})).unwrap();
        hosts(master.lent(), PerTask { cpus: 1, gpus: 1 }, options)
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
            // It was restarted, and the master still lists the one before.
            worker("d", "DEAD", &[]),
            worker("d", "ALIVE", &["0", "1"]),
        ];
        use HostState::{Draining, Ready};
        let two = Options {
            cpus: Some(2),
            ..Options::default()
        };
        let found = of_master(&workers, &two);
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
        let given = Options {
            slots: Some(4),
            ..Options::default()
        };
        assert!(
            (of_master(&workers, &given).iter())
                .all(|host| host.slots == Some(4) && host.slots_from == Some(SlotsFrom::Explicit))
        );
        let large = Options {
            cpus: Some(6),
            ..Options::default()
        };
        // What has no room for a slot is no host.
        assert_eq!(seen(&of_master(&workers, &large)), [("d", Some(2), Ready)]);
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
        let lent: Vec<Lent> = executors.into_iter().filter_map(Executor::lent).collect();
        let found = hosts(lent, PerTask { cpus: 2, gpus: 2 }, &Options::default());
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

    #[test]
    fn settings_of_an_application() {
        let environment =
            json!({"sparkProperties": [["spark.task.cpus", "2"], ["spark.app.name", "x"]]});
        let environment: Environment = serde_json::from_value(environment).unwrap();
        assert_eq!(environment.number("spark.task.cpus"), Some(2));
        assert_eq!(environment.number("spark.task.resource.gpu.amount"), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |options: Value| {
            let error = Spark::create(serde_json::from_value(options).unwrap()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadConfig);
            error.message
        };
        let which = "give either master=http://HOST:8080 or ui=http://HOST:4040";
        assert_eq!(refused(json!({})), which);
        assert_eq!(
            refused(json!({"master": "http://a", "ui": "http://b"})),
            which
        );
        assert_eq!(
            refused(json!({"ui": "a:4040"})),
            r#"ui: "a:4040" is no address of a page, such as http://host:8080"#
        );
        assert_eq!(
            refused(json!({"master": "spark://a:7077"})),
            "master: \"spark://a:7077\" is where programs connect; expected the master's page, such as http://host:8080"
        );
        assert_eq!(
            refused(json!({"ui": "http://a", "cpus": 0})),
            "cpus: must be at least 1"
        );
        assert_eq!(
            refused(json!({"ui": "http://a", "slots": 2000})),
            "slots: must be a number from 1 to 1024"
        );
    }
}

//! The plugin.

use std::time::{Duration, Instant};

use elasticrun_plugin_sdk::{
    ErrorKind, Manifest, Plugin, PluginError, Snapshot, slots::check_option,
};
use serde::Deserialize;

use crate::{
    application::{Application, Environment, Executor},
    executor_resources::{ExecutorResources, PerTask, hosts},
    master::Master,
    server::Server,
};

/// From a poll to the next. A poll is one small request.
const INTERVAL: Duration = Duration::from_secs(5);

/// The options of the plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The web page of a standalone master.
    pub master: Option<String>,
    /// The web page of an application.
    pub ui: Option<String>,
    /// Cores of a slot.
    pub cpus: Option<u32>,
    /// Slots of each host.
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
        /// Set after the first query.
        properties: Option<Properties>,
    },
}

/// Properties that do not change while an application runs.
#[derive(Debug)]
struct Properties {
    id: String,
    per_task: PerTask,
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
                properties: None,
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
        let (resources, mut per_task) = self.source.resources(until)?;
        per_task.cpus = self.options.cpus.unwrap_or(per_task.cpus);
        Ok(Snapshot {
            next_poll: Some(INTERVAL),
            ..Snapshot::new(hosts(resources, per_task, self.options.slots))
        })
    }
}

impl Source {
    fn resources(
        &mut self,
        until: Instant,
    ) -> Result<(Vec<ExecutorResources>, PerTask), PluginError> {
        match self {
            Self::Master(page) => {
                let master: Master = page.get("/json/", until)?;
                Ok((master.resources(), PerTask { cpus: 1, gpus: 1 }))
            }
            Self::Application { page, properties } => {
                let current = match properties.take() {
                    Some(known) => known,
                    None => Properties::query(page, until)?,
                };
                let path = format!("/api/v1/applications/{}/executors", current.id);
                // A failure leaves the properties unset, since the page may have a new application, as after the restart of a
                // notebook.
                let executors: Vec<Executor> = page.get(&path, until)?;
                let per_task = current.per_task;
                *properties = Some(current);
                let resources = executors.into_iter().filter_map(Executor::into_resources);
                Ok((resources.collect(), per_task))
            }
        }
    }
}

impl Properties {
    fn query(page: &Server, until: Instant) -> Result<Self, PluginError> {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn settings_of_an_application() {
        let environment =
            json!({"sparkProperties": [["spark.task.cpus", "2"], ["spark.app.name", "x"]]});
        let environment: Environment = serde_json::from_value(environment).unwrap();
        assert_eq!(environment.number("spark.task.cpus"), Some(2));
        assert_eq!(environment.number("spark.task.resource.gpu.amount"), None);
    }

    #[test]
    fn mistakes_are_named() {
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

//! Discovery as the run loop sees it: the sources of the settings, each of which answers or fails with an event. What
//! becomes of the answers is decided in the core ([`elasticrun_core::sources`]).

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use elasticrun_core::{Departure, Event};
use elasticrun_plugin_loader::{
    Allowed, Catalog, Command, HostProgram, Isolation, Running, SearchPath, Settings, Snapshot,
    Source, Spec,
};
use elasticrun_plugin_sdk::Host;
use elasticrun_protocol::HostId;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::config;

/// Sources that run; dropping it ends them.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    running: Vec<Running>,
}

/// How long sources may take at the end to hear what they were not told yet.
const LAST_COMMANDS: Duration = Duration::from_secs(10);

impl Sources {
    /// Tells all sources what becomes of a host. Those that do not know it do nothing.
    pub(crate) fn tell(&self, host: &HostId, state: Departure) {
        let host = host.to_string();
        let command = match state {
            Departure::Draining => Command::Draining { host },
            Departure::Drained => Command::Drained { host },
        };
        for source in &self.running {
            source.command(command.clone());
        }
    }

    /// Ends them once they have heard everything. It may block for [`LAST_COMMANDS`].
    pub(crate) fn finish(self) {
        let deadline = Instant::now() + LAST_COMMANDS;
        for source in self.running {
            source.finish(deadline);
        }
    }
}

/// The first word of the command line of a plugin's process.
pub(crate) const PLUGIN_HOST: &str = "__plugin-host";

/// Where plugins are found, and how they run.
pub(crate) fn catalog(
    directories: &[PathBuf],
    isolation: Isolation,
    allowed: &[Allowed],
) -> Catalog {
    let environment = |name: &str| std::env::var_os(name);
    let path = SearchPath::with_env(directories.iter().cloned(), environment);
    let catalog = Catalog::new(path).allow(allowed.to_vec());
    match isolation {
        Isolation::Thread => catalog,
        // This very program, even if its file was replaced since it was started.
        Isolation::Process => catalog.isolated(HostProgram {
            program: "/proc/self/exe".into(),
            arguments: vec![PLUGIN_HOST.to_owned()],
        }),
    }
}

/// The plugin behind a source, and its options; none for a source that has none.
///
/// # Errors
/// A path that is not text.
pub(crate) fn spec(source: &config::Source) -> anyhow::Result<Option<Spec>> {
    Ok(match source {
        config::Source::Fixed(_) | config::Source::Registration => None,
        config::Source::Script(path) => {
            let path = path
                .to_str()
                .context("--host-discovery-script: the path is not UTF-8")?;
            Some(Spec {
                name: "script".to_owned(),
                options: Map::from_iter([("path".into(), Value::from(path))]),
            })
        }
        config::Source::Plugin(spec) => Some(spec.clone()),
    })
}

/// When sources are asked.
pub(crate) fn timing(settings: &config::Hosts) -> Settings {
    Settings {
        interval: settings.interval,
        ..Settings::default()
    }
}

/// Starts the sources of the settings.
///
/// # Errors
/// When a plugin cannot be found or loaded.
pub(crate) fn start(
    settings: &config::Hosts,
    sender: mpsc::Sender<Event>,
) -> anyhow::Result<Sources> {
    let mut catalog = catalog(
        &settings.plugin_dirs,
        settings.plugin_isolation,
        &settings.plugin_allow,
    );
    let mut running = Vec::new();
    for (index, source) in settings.sources.iter().enumerate() {
        // A list that does not change needs no polling.
        if let config::Source::Fixed(hosts) = source {
            let hosts = hosts.iter().cloned().map(Host::from).collect();
            sender.try_send(Event::SourceAnswered {
                source: index,
                snapshot: Snapshot::new(hosts),
            })?;
        }
        let Some(spec) = spec(source)? else { continue };
        let name = spec.name.as_str();
        let (plugin, options) = catalog
            .source(&spec)
            .with_context(|| format!("--discovery {name}"))?;
        let sender = sender.clone();
        let polled = Source::new(name, plugin, options)
            .settings(timing(settings))
            .start(Box::new(move |update| {
                let event = match update.result {
                    Ok(snapshot) => Event::SourceAnswered {
                        source: index,
                        snapshot,
                    },
                    Err(failure) => Event::SourceFailed {
                        source: index,
                        // A script that has never worked says that its configuration is bad.
                        fatal: failure.kind.is_fatal(),
                        why: format!("{}: {failure}", update.source),
                    },
                };
                // The run loop is gone when the job is.
                let _ = sender.blocking_send(event);
            }));
        running.push(polled.with_context(|| format!("--discovery {name}"))?);
    }
    Ok(Sources { running })
}

//! The sources of hosts. Each answer or failure of a source is an event for the run loop. The core decides what follows
//! ([`elasticrun_core::sources`]).

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use elasticrun_core::{Departure, Event};
use elasticrun_plugin_loader::{
    Allowed, Catalog, Command, Failure, HostProgram, Isolation, Running, SearchPath, Settings,
    Snapshot, Source, Spec,
};
use elasticrun_plugin_sdk::Host;
use elasticrun_protocol::HostId;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::config;

/// Running sources. Dropping it ends them.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    running: Vec<Running>,
}

/// How long sources may take at the end to receive their pending commands.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

impl Sources {
    /// Sends the state of a departing host to all sources. A source ignores a host that it does not know.
    pub(crate) fn notify(&self, host: &HostId, state: Departure) {
        let host = host.to_string();
        let command = match state {
            Departure::Draining => Command::Draining { host },
            Departure::Drained => Command::Drained { host },
        };
        for source in &self.running {
            source.command(command.clone());
        }
    }

    /// Ends the sources after they received all commands. May block for [`FINISH_TIMEOUT`].
    pub(crate) fn finish(self) {
        let deadline = Instant::now() + FINISH_TIMEOUT;
        for source in self.running {
            source.finish(deadline);
        }
    }
}

/// The first word of the command line of a plugin's process.
pub(crate) const PLUGIN_HOST: &str = "__plugin-host";

/// The catalog of plugins: their directories, isolation and allowed hashes.
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
        // The running program, even if its file was replaced since its start.
        Isolation::Process => catalog.isolated(HostProgram {
            program: "/proc/self/exe".into(),
            arguments: vec![PLUGIN_HOST.to_owned()],
        }),
    }
}

/// The plugin of a source, and its options. `None` for a source without a plugin.
///
/// # Errors
/// A path is not UTF-8.
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

/// When sources are polled.
pub(crate) fn timing(settings: &config::Hosts) -> Settings {
    Settings {
        interval: settings.interval,
        ..Settings::default()
    }
}

/// Starts the sources of the settings.
///
/// # Errors
/// A plugin cannot be found or loaded.
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
                        // A script that never worked reports a bad configuration.
                        fatal: failure.kind.is_fatal(),
                        why: reason(&update.source, &failure, update.next),
                    },
                };
                // Fails after the end of the run loop.
                let _ = sender.blocking_send(event);
            }));
        running.push(polled.with_context(|| format!("--discovery {name}"))?);
    }
    Ok(Sources { running })
}

/// A failure of a source for the log, with the time of the next poll. A failure that would end the job at its start names
/// none.
fn reason(source: &str, failure: &Failure, next: Option<Duration>) -> String {
    match next.filter(|_| !failure.kind.is_fatal()) {
        None => format!("{source}: {failure}"),
        Some(next) => {
            let next = match next.as_secs() {
                0 => "less than 1 s".to_owned(),
                seconds => format!("{seconds} s"),
            };
            format!("{source}: {failure}; next poll in {next}")
        }
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_plugin_loader::FailureKind;

    use super::*;

    #[test]
    fn a_failure_has_the_time_of_the_next_poll() {
        let failure = |kind| Failure {
            kind,
            message: "no".into(),
            retry_after: None,
        };
        let shown = |kind, next: Option<u64>| {
            reason("rack", &failure(kind), next.map(Duration::from_millis))
        };
        assert_eq!(
            shown(FailureKind::Throttled, Some(12_300)),
            "rack: no; next poll in 12 s"
        );
        assert_eq!(
            shown(FailureKind::Died, Some(50)),
            "rack: no; next poll in less than 1 s"
        );
        assert_eq!(shown(FailureKind::Hung, None), "rack: no");
        assert_eq!(shown(FailureKind::Auth, Some(1000)), "rack: no");
    }
}

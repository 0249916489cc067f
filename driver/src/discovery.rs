//! Discovery as the run loop sees it: the sources of the settings, folded into one list.
//!
//! A host is removed when it is missing from two lists (contract), so a list must not be said more often
//! than its sources were asked: what is new is passed on at once, what is missing only when every source
//! has answered since the last list.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use elasticrun_core::Departure;
use elasticrun_discovery::{
    Allowed, Catalog, Command, HostProgram, Isolation, Running, SearchPath, Settings, Snapshot,
    Source, Spec, merge,
};
use elasticrun_plugin_sdk::Host;
use elasticrun_protocol::HostId;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::config;

/// What discovery has to say.
#[derive(Debug)]
pub enum Update {
    /// The hosts of all sources, merged by id.
    List(Vec<Host>),
    /// A source failed.
    Failed {
        /// Trying again cannot help.
        fatal: bool,
        /// For a person.
        why: String,
    },
}

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
    sender: mpsc::Sender<Update>,
) -> anyhow::Result<Sources> {
    let mut catalog = catalog(
        &settings.plugin_dirs,
        settings.plugin_isolation,
        &settings.plugin_allow,
    );
    let merged = Arc::new(Mutex::new(Merged::default()));
    let mut running = Vec::new();
    for source in &settings.sources {
        // A list that does not change needs no polling.
        if let config::Source::Fixed(hosts) = source {
            let hosts = hosts.iter().cloned().map(Host::from).collect();
            let mut merged = merged.lock().unwrap_or_else(PoisonError::into_inner);
            merged.fixed = Some(Snapshot::new(hosts));
        }
        let Some(spec) = spec(source)? else { continue };
        let name = spec.name.as_str();
        let (plugin, options) = catalog
            .source(&spec)
            .with_context(|| format!("--discovery {name}"))?;
        let index = merged.lock().unwrap_or_else(PoisonError::into_inner).add();
        let (merged, sender) = (merged.clone(), sender.clone());
        let polled = Source::new(name, plugin, options)
            .settings(timing(settings))
            .start(Box::new(move |update| {
                let said = {
                    let mut merged = merged.lock().unwrap_or_else(PoisonError::into_inner);
                    match update.result {
                        Ok(snapshot) => merged.answered(index, snapshot).map(Update::List),
                        Err(failure) => {
                            merged.failed(index);
                            // A script that has never worked says that its configuration is bad.
                            let fatal = failure.kind.is_fatal();
                            Some(Update::Failed {
                                fatal,
                                why: format!("{}: {failure}", update.source),
                            })
                        }
                    }
                };
                if let Some(said) = said {
                    // The run loop is gone when the job is.
                    let _ = sender.blocking_send(said);
                }
            }));
        running.push(polled.with_context(|| format!("--discovery {name}"))?);
    }
    let merged = merged.lock().unwrap_or_else(PoisonError::into_inner);
    if let (Some(fixed), true) = (&merged.fixed, running.is_empty()) {
        sender.try_send(Update::List(fixed.hosts.clone()))?;
    }
    drop(merged);
    Ok(Sources { running })
}

/// The last good snapshots of all sources.
#[derive(Debug, Default)]
struct Merged {
    fixed: Option<Snapshot>,
    sources: Vec<Option<Snapshot>>,
    /// Who has not answered since the last list.
    silent: BTreeSet<usize>,
    last: Vec<Host>,
}

impl Merged {
    fn add(&mut self) -> usize {
        self.sources.push(None);
        self.silent.insert(self.sources.len() - 1);
        self.sources.len() - 1
    }

    /// Gives the list, if it is time to say it.
    fn answered(&mut self, index: usize, snapshot: Snapshot) -> Option<Vec<Host>> {
        self.sources[index] = Some(snapshot);
        self.silent.remove(&index);
        let list = merge(self.fixed.iter().chain(self.sources.iter().flatten())).hosts;
        let news = list.iter().any(|host| !self.last.contains(host));
        if !news && !self.silent.is_empty() {
            return None;
        }
        if self.silent.is_empty() {
            self.silent = (0..self.sources.len()).collect();
        } else {
            // Not all were asked: what is missing now is missing only once all have been.
            let present: BTreeSet<&str> = list.iter().map(|host| host.id.as_str()).collect();
            let missing = self
                .last
                .iter()
                .filter(|host| !present.contains(host.id.as_str()));
            let said = list.iter().chain(missing).cloned().collect();
            self.last = list;
            return Some(said);
        }
        self.last.clone_from(&list);
        Some(list)
    }

    fn failed(&mut self, index: usize) {
        self.silent.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(ids: &[&str]) -> Snapshot {
        Snapshot::new(ids.iter().map(|id| Host::new(*id)).collect())
    }

    fn ids(list: Option<Vec<Host>>) -> Option<Vec<String>> {
        list.map(|list| list.into_iter().map(|host| host.id).collect())
    }

    #[test]
    fn one_source_is_said_as_often_as_it_answers() {
        let mut merged = Merged::default();
        let only = merged.add();
        for list in [&["a", "b"][..], &["a"], &["a"]] {
            assert_eq!(ids(merged.answered(only, snapshot(list))).unwrap(), list);
        }
    }

    #[test]
    fn what_is_missing_is_said_only_when_all_sources_have_answered() {
        let mut merged = Merged::default();
        let (slow, fast) = (merged.add(), merged.add());
        assert_eq!(ids(merged.answered(fast, snapshot(&["f"]))).unwrap(), ["f"]);
        assert_eq!(
            ids(merged.answered(slow, snapshot(&["s"]))).unwrap(),
            ["s", "f"]
        );
        assert_eq!(
            ids(merged.answered(fast, snapshot(&[]))),
            None,
            "missing, but not all have answered"
        );
        assert_eq!(
            ids(merged.answered(fast, snapshot(&["g"]))).unwrap(),
            ["s", "g", "f"],
            "news at once"
        );
        assert_eq!(
            ids(merged.answered(slow, snapshot(&["s"]))).unwrap(),
            ["s", "g"]
        );
    }
}

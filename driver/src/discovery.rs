//! Discovery as the run loop sees it: the sources of the settings, folded into one list.
//!
//! A host is removed when it is missing from two lists (contract), so a list must not be said more often
//! than its sources were asked: what is new is passed on at once, what is missing only when every source
//! has answered since the last list.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use elasticrun_discovery::{Catalog, Running, SearchPath, Settings, Snapshot, Source, merge};
use elasticrun_plugin_sdk::Host;
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
#[derive(Debug)]
pub(crate) struct Sources {
    _running: Vec<Running>,
}

/// Starts the sources of the settings.
///
/// # Errors
/// When a plugin cannot be found or loaded.
pub(crate) fn start(
    settings: &config::Hosts,
    sender: mpsc::Sender<Update>,
) -> anyhow::Result<Sources> {
    let environment = |name: &str| std::env::var_os(name);
    let path = SearchPath::with_env(settings.plugin_dirs.iter().cloned(), environment);
    let mut catalog = Catalog::new(path);
    let merged = Arc::new(Mutex::new(Merged::default()));
    let mut running = Vec::new();
    for source in &settings.sources {
        let (plugin, options) = match source {
            // A list that does not change needs no polling.
            config::Source::Fixed(hosts) => {
                let hosts = hosts.iter().cloned().map(Host::from).collect();
                let mut merged = merged.lock().unwrap_or_else(PoisonError::into_inner);
                merged.fixed = Some(Snapshot::new(hosts));
                continue;
            }
            config::Source::Registration => continue,
            config::Source::Script(path) => {
                let path = path
                    .to_str()
                    .context("--host-discovery-script: the path is not UTF-8")?;
                (
                    "script",
                    Map::from_iter([("path".into(), Value::from(path))]),
                )
            }
            config::Source::Plugin(plugin) => (plugin.name.as_str(), plugin.options.clone()),
        };
        let library = catalog
            .find(plugin)
            .with_context(|| format!("--discovery {plugin}"))?;
        let index = merged.lock().unwrap_or_else(PoisonError::into_inner).add();
        let (merged, sender) = (merged.clone(), sender.clone());
        let timing = Settings {
            interval: settings.interval,
            ..Settings::default()
        };
        let polled = Source::new(plugin, library, options)
            .settings(timing)
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
        running.push(polled.with_context(|| format!("--discovery {plugin}"))?);
    }
    let merged = merged.lock().unwrap_or_else(PoisonError::into_inner);
    if let (Some(fixed), true) = (&merged.fixed, running.is_empty()) {
        sender.try_send(Update::List(fixed.hosts.clone()))?;
    }
    drop(merged);
    Ok(Sources { _running: running })
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

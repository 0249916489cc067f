//! The plugin.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{self, PathBuf},
    time::Duration,
};

use elasticrun_plugin_sdk::{
    Changed, Host, Manifest, Plugin, PluginError, Snapshot, hosts::parse_hostfile,
};
use serde::Deserialize;

use crate::watch::Watcher;

/// From a list that lacks hosts to the next poll. The job lets a host go when two polls in a row do not list it, so
/// that a short list does no harm; one whose writer is done need not wait for that as long as others.
const CONFIRM: Duration = Duration::from_millis(20);

/// Which file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// A file with one host a line. A relative path starts where the job was started.
    pub path: PathBuf,
}

/// A file that lists hosts.
#[derive(Debug)]
pub struct Hosts {
    path: PathBuf,
    /// Ends when this is dropped.
    watcher: Option<Watcher>,
    /// The ids of the last good list.
    listed: BTreeSet<String>,
}

impl Plugin for Hosts {
    const MANIFEST: Manifest = Manifest {
        name: "file",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "the hosts of a file, followed when it changes: path=FILE",
        config: r#"{"type": "object", "additionalProperties": false, "required": ["path"], "properties": {"path": {"type": "string", "description": "a file with one host a line"}}}"#,
        ..Manifest::EMPTY
    };

    type Config = Options;

    fn create(options: Options) -> Result<Self, PluginError> {
        let bad = |error: &dyn fmt::Display| {
            PluginError::bad_config(format!("path {}: {error}", options.path.display()))
        };
        let path = path::absolute(&options.path).map_err(|error| bad(&error))?;
        let plugin = Self {
            path,
            watcher: None,
            listed: BTreeSet::new(),
        };
        plugin.read().map_err(|error| bad(&error))?;
        Ok(plugin)
    }

    fn poll(&mut self, _deadline: Duration) -> Result<Snapshot, PluginError> {
        let written = self.watcher.as_ref().is_some_and(Watcher::take_written);
        let hosts = self.read().map_err(|error| {
            PluginError::retryable(format!("path {}: {error}", self.path.display()))
        })?;
        let listed: BTreeSet<_> = hosts.iter().map(|host| host.id.clone()).collect();
        let fewer = !self.listed.is_subset(&listed);
        self.listed = listed;
        Ok(Snapshot {
            next_poll: (written && fewer).then_some(CONFIRM),
            ..Snapshot::new(hosts)
        })
    }

    const WATCHES: bool = true;

    /// A file that cannot be watched is polled; that is no reason to refuse it.
    fn watch(&mut self, changed: Changed) -> Result<(), PluginError> {
        match Watcher::start(&self.path, changed) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the file is not watched, only polled");
            }
        }
        Ok(())
    }
}

impl Hosts {
    fn read(&self) -> Result<Vec<Host>, String> {
        let content = fs::read(&self.path).map_err(|error| error.to_string())?;
        let hosts = parse_hostfile(content).map_err(|error| error.to_string())?;
        Ok(hosts.into_iter().map(Host::from).collect())
    }
}

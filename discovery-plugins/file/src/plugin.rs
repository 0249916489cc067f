//! The plugin.

use std::{
    collections::BTreeSet,
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{self, Path, PathBuf},
    time::Duration,
};

use elasticrun_plugin_sdk::{
    ChangeNotifier, Host, HostState, Manifest, Plugin, PluginError, Snapshot,
    hosts::parse_followed_file,
};
use nix::fcntl::OFlag;
use serde::Deserialize;

use crate::watch::Watcher;

/// From a list that lacks hosts to the next poll. The job removes a host that two consecutive polls do not list, so that an
/// incomplete list does no harm. If the writer has closed the file, the second poll follows soon.
const CONFIRM: Duration = Duration::from_millis(20);

/// The size limit of the file, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Options of the plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// A file with one host per line. A relative path starts at the working directory of the job.
    pub path: PathBuf,
}

/// A file that lists hosts.
#[derive(Debug)]
pub struct Hosts {
    path: PathBuf,
    /// Ends when this is dropped.
    watcher: Option<Watcher>,
    /// The ids of the ready hosts in the last good list.
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
        let ready = hosts.iter().filter(|host| host.state == HostState::Ready);
        let listed: BTreeSet<_> = ready.map(|host| host.id.clone()).collect();
        let fewer = !self.listed.is_subset(&listed);
        self.listed = listed;
        Ok(Snapshot {
            next_poll: (written && fewer).then_some(CONFIRM),
            ..Snapshot::new(hosts)
        })
    }

    const WATCHES: bool = true;

    /// A file that cannot be watched is only polled.
    fn watch(&mut self, changed: ChangeNotifier) -> Result<(), PluginError> {
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
        let content = read(&self.path)?;
        let hosts = parse_followed_file(content).map_err(|error| error.to_string())?;
        Ok(hosts.into_iter().map(Host::from).collect())
    }
}

/// Reads a file of limited size. Refuses a named pipe, on which the read would wait for a writer, and a device.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let text = |error: io::Error| error.to_string();
    // Opening a named pipe waits for a writer, too. For a file, the flag has no effect.
    let file = File::options()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
        .map_err(text)?;
    if !file.metadata().map_err(text)?.is_file() {
        return Err("is no regular file".to_owned());
    }
    let mut content = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut content)
        .map_err(text)?;
    if content.len() as u64 > MAX_FILE {
        return Err(format!("is larger than {} MiB", MAX_FILE >> 20));
    }
    Ok(content)
}

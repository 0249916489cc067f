//! Plugin files for the tests.
//!
//! Cargo builds a dependency with all of its crate types. So the libraries of this package's plugins are beside the test's
//! program, and are not older.

#![allow(dead_code, clippy::unwrap_used)]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use elasticrun_plugin_loader::{
    Backoff, Error, Failure, FailureKind, Instance, Library, Plugin, Running, Settings, Snapshot,
    Source, Update,
};
use serde_json::{Map, Value};
use tempfile::TempDir;

pub(crate) const PLENTY: Duration = Duration::from_secs(30);

/// The directory with the libraries of the bundled plugins.
pub(crate) fn built() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}

pub(crate) fn file_of(name: &str) -> String {
    format!("libelasticrun_plugin_{}.so", name.replace('-', "_"))
}

pub(crate) fn bundled(name: &str) -> Library {
    Library::open(&built().join(file_of(name))).unwrap()
}

/// A directory that only its owner may write, with a copy of a bundled plugin.
pub(crate) fn copied(name: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(file_of(name));
    fs::copy(built().join(file_of(name)), &path).unwrap();
    (dir, path)
}

pub(crate) fn written(name: &str, content: &[u8]) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(file_of(name));
    fs::write(&path, content).unwrap();
    (dir, path)
}

/// Compiles `plugin.c` with the header for plugin authors. `defines` select its mistakes.
pub(crate) fn compiled(defines: &[&str]) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(file_of("c"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wno-unused",
            "-Werror",
        ])
        .arg("-I")
        .arg(here.join("../sdk/include"))
        .args(defines.iter().map(|define| format!("-D{define}")))
        .arg(here.join("tests/plugin.c"))
        .arg("-o")
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (dir, path)
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn options(json: Value) -> Map<String, Value> {
    json.as_object().unwrap().clone()
}

pub(crate) fn instance(library: &Library, json: Value) -> Instance {
    library.create(&options(json)).unwrap()
}

/// The message, without its leading path.
pub(crate) fn refused(path: &Path) -> String {
    let message = Library::open(path).unwrap_err().to_string();
    let prefix = format!("{}: ", path.display());
    message.strip_prefix(&prefix).unwrap_or(&message).to_owned()
}

pub(crate) fn error_of(path: &Path) -> Error {
    Library::open(path).unwrap_err()
}

pub(crate) fn wait_until(mut condition: impl FnMut() -> bool, what: &str) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PLENTY, "{what}");
        std::thread::yield_now();
    }
}

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// Settings with frequent polls.
pub(crate) fn quick() -> Settings {
    Settings {
        interval: 10 * MILLISECOND,
        deadline: PLENTY,
        backoff: Backoff {
            first: MILLISECOND,
            max: 20 * MILLISECOND,
        },
    }
}

/// A running source and its updates.
pub(crate) struct Watched {
    pub(crate) running: Running,
    pub(crate) updates: Receiver<Update>,
}

/// Starts a source.
pub(crate) fn watch(plugin: impl Into<Plugin>, config: Value, settings: Settings) -> Watched {
    let (sender, updates) = channel();
    let running = Source::new("mine", plugin, options(config))
        .settings(settings)
        .start(Box::new(move |update| {
            let _ = sender.send(update);
        }))
        .unwrap();
    Watched { running, updates }
}

impl Watched {
    pub(crate) fn next(&self) -> Result<Snapshot, Failure> {
        let update = self.updates.recv_timeout(PLENTY).unwrap();
        assert_eq!(update.source, "mine");
        update.result
    }

    pub(crate) fn failure(&self) -> (FailureKind, String) {
        let failure = self.next().unwrap_err();
        (failure.kind, failure.message)
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.next()
            .unwrap()
            .hosts
            .into_iter()
            .map(|host| host.id)
            .collect()
    }
}

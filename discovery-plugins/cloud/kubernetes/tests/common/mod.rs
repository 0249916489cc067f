//! A plugin in an environment of its own.

#![allow(clippy::unwrap_used, dead_code)]

use std::{ffi::OsStr, fs, time::Duration};

use elasticrun_plugin_kubernetes::Kubernetes;
use elasticrun_plugin_sdk::{Plugin, PluginError, from_options};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PLENTY: Duration = Duration::from_secs(20);

/// Makes this the configuration of this environment.
pub(crate) fn configure(kubeconfig: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    fs::write(&path, kubeconfig).unwrap();
    set("KUBECONFIG", path);
    directory
}

/// Sets a variable of this environment.
pub(crate) fn set(name: &str, value: impl AsRef<OsStr>) {
    // SAFETY: nextest runs each test in its own process, and there is no other thread yet.
    unsafe { std::env::set_var(name, value) };
}

/// A plugin with these options.
pub(crate) fn make(options: Value) -> Result<Kubernetes, PluginError> {
    Kubernetes::create(from_options(options.to_string().as_bytes())?)
}

//! A discovery script whose answer a test changes while a job runs.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A script that prints a file, and that file.
#[derive(Debug)]
pub struct HostsFile {
    list: PathBuf,
    script: PathBuf,
}

impl HostsFile {
    /// Makes both in `directory`. The script prints `text` unchanged.
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn create(directory: &Path, text: &str) -> Self {
        let hosts = Self {
            list: directory.join("hosts"),
            script: directory.join("discover.sh"),
        };
        hosts.set(text);
        write_script(&hosts.script, &format!("cat '{}'", hosts.list.display()));
        hosts
    }

    /// Path of the script.
    pub fn script(&self) -> &Path {
        &self.script
    }

    /// Replaces the answer atomically.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set(&self, text: &str) {
        let next = self.list.with_extension("next");
        fs::write(&next, text).expect("the list of hosts can be written");
        fs::rename(&next, &self.list).expect("the list of hosts can be replaced");
    }
}

/// Writes an executable shell script.
pub(crate) fn write_script(path: &Path, body: &str) {
    fs::write(path, format!("#!/bin/sh\n{body}\n")).expect("a script can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .expect("a script can be made executable");
}

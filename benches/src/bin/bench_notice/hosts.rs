//! The file that lists the hosts of the job.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Hosts `h0`, `h1`, ... of one slot each; all are this machine.
pub(crate) struct Hosts {
    path: PathBuf,
    count: u32,
}

impl Hosts {
    /// Writes a file with `count` hosts.
    pub(crate) fn create(directory: &Path, count: u32) -> anyhow::Result<Self> {
        let hosts = Self {
            path: directory.join("hosts"),
            count,
        };
        let all: Vec<u32> = (0..count).collect();
        hosts.write(&all)?;
        Ok(hosts)
    }

    /// The flags of a job on these hosts.
    pub(crate) fn flags(&self) -> Vec<String> {
        let (count, path) = (self.count, self.path.display());
        format!(
            "-np {count} --min-np 1 --max-np {count} --launcher local --last-call 0s --discovery file:path={path}"
        )
        .split_whitespace()
        .map(str::to_owned)
        .collect()
    }

    /// Replaces the list of hosts: renames a new file over the old one.
    pub(crate) fn write(&self, numbers: &[u32]) -> anyhow::Result<()> {
        let lines: String = numbers
            .iter()
            .map(|number| format!("h{number}:1\n"))
            .collect();
        let new = self.path.with_extension("new");
        fs::write(&new, lines)?;
        Ok(fs::rename(&new, &self.path)?)
    }
}

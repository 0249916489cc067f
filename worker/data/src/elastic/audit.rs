//! The audit log: which commit holds which rows. It proves to the user that each row was used exactly once.
//!
//! Each worker process writes one file with a line of JSON for each event:
//!
//! ```text
//! {"round":3,"base":"1.2.7"}                                    a round of this worker continues from a commit
//! {"commit":"1.3.1","epoch":0,"rows":{"0":[4,17],"12":[9]}}     rows that it has processed for a commit, by row group
//! {"sealed":"1.3.1"}                                            the commit is sealed
//! ```
//!
//! The rows are written before any worker can seal the commit, so each committed row is in a file. A commit is void if
//! it is newer than the base of a later round, or if no worker has sealed it. `elasticrun data audit` evaluates the
//! files.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use crate::Batch;

#[derive(Debug)]
pub(super) struct Audit {
    file: File,
    /// Rows since the last commit: by epoch and row group.
    rows: BTreeMap<u64, BTreeMap<u32, Vec<u32>>>,
    /// The commit that was reported last.
    reported: Option<String>,
}

impl Audit {
    pub(super) fn create(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let (process, mut number) = (std::process::id(), 0);
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let file = loop {
            let name = format!("{}.{process}.{number}.jsonl", host.trim());
            match OpenOptions::new()
                .append(true)
                .create_new(true)
                .open(directory.join(name))
            {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                opened => break opened?,
            }
        };
        Ok(Self {
            file,
            rows: BTreeMap::new(),
            reported: None,
        })
    }

    pub(super) fn read(&mut self, epoch: u64, batch: &Batch) {
        let groups = self.rows.entry(epoch).or_default();
        for origin in batch.origins() {
            let group = batch.spans()[origin.span as usize].group;
            groups.entry(group).or_default().push(origin.row);
        }
    }

    pub(super) fn reported(&mut self, commit: &str) -> io::Result<()> {
        for (epoch, groups) in std::mem::take(&mut self.rows) {
            let groups: Vec<String> = (groups.into_iter())
                .map(|(group, rows)| format!("\"{group}\":{rows:?}"))
                .collect();
            self.line(&format!(
                "{{\"commit\":\"{commit}\",\"epoch\":{epoch},\"rows\":{{{}}}}}",
                groups.join(",")
            ))?;
        }
        self.reported = Some(commit.to_owned());
        Ok(())
    }

    pub(super) fn sealed(&mut self) -> io::Result<()> {
        match self.reported.take() {
            Some(commit) => self.line(&format!("{{\"sealed\":\"{commit}\"}}")),
            None => Ok(()),
        }
    }

    pub(super) fn round(&mut self, round: u64, base: Option<&str>) -> io::Result<()> {
        self.rolled_back();
        let base = base.map_or("null".to_owned(), |base| format!("\"{base}\""));
        self.line(&format!("{{\"round\":{round},\"base\":{base}}}"))
    }

    pub(super) fn rolled_back(&mut self) {
        self.rows.clear();
        self.reported = None;
    }

    /// A single write, so that a killed process leaves no partial line.
    fn line(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}

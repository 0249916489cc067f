//! The journal of one worker process.

use std::{
    env,
    fs::{File, create_dir_all},
    io::{self, Write},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use elasticrun_worker::{CommitId, Session};

use super::entry::Entry;

/// Records which rows a worker uses.
///
/// Each entry is one write to the file, so the death of the process leaves no partial entry.
#[derive(Debug)]
pub struct Journal(Option<File>);

impl Journal {
    /// A journal that records nothing.
    pub fn none() -> Self {
        Self(None)
    }

    /// Creates a file for this process in a directory that all workers share.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(directory: &Path) -> io::Result<Self> {
        create_dir_all(directory)?;
        let name = |variable| env::var(variable).unwrap_or_else(|_| "alone".to_owned());
        let host = name("ELASTICRUN_HOST").replace('/', "_");
        let slot = name("ELASTICRUN_LOCAL_RANK");
        let file = format!("{host}-{slot}-{}.txt", std::process::id());
        Ok(Self(Some(File::create_new(directory.join(file))?)))
    }

    /// Records the start of a round.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn started(&mut self, session: &Session<'_>) -> io::Result<()> {
        let world = session.world();
        self.write(|micros| Entry::Start {
            micros,
            round: CommitId {
                count: 0,
                ..session.next_commit()
            },
            base: world.base(),
            rank: world.rank(),
            size: world.size(),
            pid: std::process::id(),
        })
    }

    /// Records which rows go into a commit.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn uses(
        &mut self,
        commit: CommitId,
        epoch: u64,
        rows: impl Iterator<Item = u64>,
    ) -> io::Result<()> {
        self.write(|micros| Entry::Rows {
            micros,
            commit,
            epoch,
            rows: rows.collect(),
        })
    }

    fn write(&mut self, line: impl FnOnce(u64) -> Entry) -> io::Result<()> {
        let Some(file) = &mut self.0 else {
            return Ok(());
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = now.map_or(0, |since| since.as_micros() as u64);
        file.write_all(format!("{}\n", line(micros)).as_bytes())
    }
}

//! `--output-filename`: DIR/rank.NNN/{stdout,stderr}.
//!
//! A restarted worker appends after a line that names its start. Nothing is truncated. A file takes at most [`CAP`] bytes
//! from one job, so that the endless output of one worker does not fill the disk.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use elasticrun_protocol::{HostId, Process, Rank};

use crate::control::Lines;

/// Size limit of the output of one job in one file: 1 GiB.
const CAP: u64 = 1 << 30;

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("--output-filename {}: {source}", path.display())]
pub(crate) struct Error {
    path: PathBuf,
    source: io::Error,
}

/// The open files of a job.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    open: BTreeMap<(Option<Rank>, bool), Stream>,
}

#[derive(Debug)]
struct Stream {
    path: PathBuf,
    /// `None` after a failed write, or when the limit is reached.
    file: Option<File>,
    written: u64,
    writer: Option<(HostId, Process)>,
}

impl Files {
    /// Creates the directory and checks that it is writable.
    ///
    /// # Errors
    /// [`Error`] holds the directory and the error of the system.
    pub(crate) fn create(directory: &Path) -> Result<Self, Error> {
        let fail = |source| Error {
            path: directory.to_owned(),
            source,
        };
        fs::create_dir_all(directory).map_err(fail)?;
        let probe = directory.join(".elasticrun-probe");
        File::create(&probe).map_err(fail)?;
        fs::remove_file(&probe).map_err(fail)?;
        Ok(Self {
            directory: directory.to_owned(),
            open: BTreeMap::new(),
        })
    }

    /// Appends lines to the file of their rank. Returns a warning if that file is given up.
    pub(crate) fn append(&mut self, lines: &Lines) -> Option<String> {
        let output = &lines.output;
        let key = (output.rank, output.stderr);
        let stream = self.open.entry(key).or_insert_with(|| Stream {
            path: path(&self.directory, key),
            file: None,
            written: 0,
            writer: None,
        });
        let writer = (lines.host.clone(), output.process);
        let first = stream.writer.is_none();
        if !first && stream.file.is_none() {
            return None;
        }
        let error = stream.write(&writer, &output.text, first).err();
        stream.writer = Some(writer);
        error.map(|error| {
            stream.file = None;
            format!(
                "--output-filename {}: {error}; what this rank prints is no longer kept there",
                stream.path.display()
            )
        })
    }
}

impl Stream {
    fn write(&mut self, writer: &(HostId, Process), text: &str, first: bool) -> io::Result<()> {
        if first {
            if let Some(parent) = self.path.parent() {
                fs::create_dir_all(parent)?;
            }
            self.file = Some(
                OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(&self.path)?,
            );
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.writer.as_ref() != Some(writer)
            && (writer.1.generation.0 > 1 || !first || file.metadata()?.len() > 0)
        {
            let (host, process) = writer;
            writeln!(file, "--- {host}, {process} ---")?;
        }
        self.written += text.len() as u64;
        if self.written > CAP {
            return Err(io::Error::other(format!(
                "it holds {CAP} bytes of this job, the most it may"
            )));
        }
        file.write_all(text.as_bytes())
    }
}

fn path(directory: &Path, (rank, stderr): (Option<Rank>, bool)) -> PathBuf {
    let rank = rank.map_or("rank.none".to_owned(), |rank| format!("rank.{:03}", rank.0));
    directory
        .join(rank)
        .join(if stderr { "stderr" } else { "stdout" })
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::{Generation, LocalRank, control::Output};

    use super::*;

    fn lines(generation: u32, text: &str) -> Lines {
        let process = Process {
            local_rank: LocalRank(0),
            generation: Generation(generation),
        };
        let output = Output {
            process,
            rank: Some(Rank(1)),
            stderr: false,
            text: text.into(),
        };
        Lines {
            host: "a".into(),
            output,
        }
    }

    #[test]
    fn a_restarted_rank_appends_under_its_new_start() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::create(directory.path()).unwrap();
        assert_eq!(files.append(&lines(1, "one\n")), None);
        assert_eq!(files.append(&lines(2, "two\n")), None);
        let written = fs::read_to_string(directory.path().join("rank.001/stdout")).unwrap();
        assert_eq!(written, "one\n--- a, local rank 0 (start 2) ---\ntwo\n");
        let mut again = Files::create(directory.path()).unwrap();
        again.append(&lines(1, "three\n"));
        let written = fs::read_to_string(directory.path().join("rank.001/stdout")).unwrap();
        assert!(
            written.ends_with("two\n--- a, local rank 0 (start 1) ---\nthree\n"),
            "{written}"
        );
    }

    #[test]
    fn a_full_disk_is_reported_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::create(directory.path()).unwrap();
        let rank = directory.path().join("rank.001");
        fs::create_dir_all(&rank).unwrap();
        std::os::unix::fs::symlink("/dev/full", rank.join("stdout")).unwrap();
        let warning = files.append(&lines(1, "one\n")).unwrap();
        assert!(warning.contains("No space left on device"), "{warning}");
        assert_eq!(files.append(&lines(1, "two\n")), None);
    }
}

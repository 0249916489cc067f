//! Reads and checks the journals of all workers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use elasticrun_worker::CommitId;

use super::entry::Entry;

/// An error in the journals, or in the training.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory or a file.
    #[error("cannot read {path}")]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The directory holds no journal.
    #[error("{path} holds no journal: was the job run with --audit?")]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A line that is no entry of a journal.
    #[error("{path}, line {number} is no line of a journal: {line}")]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        number: usize,
        /// The line.
        line: String,
    },
    /// Two workers began a round from different bases.
    #[error("round {round} began from {one:?} and from {other:?}")]
    Bases {
        /// Commit 0 of the round.
        round: CommitId,
        /// One base.
        one: Option<CommitId>,
        /// Another base.
        other: Option<CommitId>,
    },
    /// A row was not used exactly once in an epoch.
    #[error(
        "{wrong} of {rows} rows of epoch {epoch} were not used exactly once; row {row} was used {times} times"
    )]
    Times {
        /// The epoch, from 0.
        epoch: u64,
        /// The first such row.
        row: u64,
        /// How often it was used.
        times: u64,
        /// Number of such rows.
        wrong: usize,
        /// Rows of an epoch.
        rows: u64,
    },
    /// A row or an epoch that does not exist.
    #[error("row {row} of epoch {epoch} was used, which does not exist")]
    Beyond {
        /// The epoch, from 0.
        epoch: u64,
        /// The row.
        row: u64,
    },
}

/// A started round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Its commit 0.
    pub id: CommitId,
    /// The commit that it began with, if any.
    pub base: Option<CommitId>,
    /// Number of its workers.
    pub size: u32,
    /// From the start of the last step before it to that of its first one. `None` if one is
    /// missing.
    pub pause: Option<Duration>,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of worker processes that were in a round.
    pub processes: usize,
    /// The started rounds, in order.
    pub rounds: Vec<Round>,
    /// Rows used in valid commits.
    pub used: u64,
    /// Rows used in void commits.
    pub void: u64,
}

/// Reads all journals of a directory and proves that each of `rows` rows was used exactly once in each of
/// `epochs` epochs.
///
/// # Errors
/// See [`Error`].
pub fn check(directory: &Path, rows: u64, epochs: u64) -> Result<Summary, Error> {
    let journals = read(directory)?;
    let rounds = rounds(journals.iter().flatten())?;
    let is_void = |commit: CommitId| {
        let mut later = rounds.iter().filter(|round| round.id.round > commit.round);
        later.any(|round| Some(commit) > round.base)
    };
    let mut times = vec![vec![0_u64; rows as usize]; epochs as usize];
    let (mut used, mut void) = (0, 0);
    for line in journals.iter().flatten() {
        let Entry::Rows {
            commit,
            epoch,
            rows,
            ..
        } = line
        else {
            continue;
        };
        if is_void(*commit) {
            void += rows.len() as u64;
            continue;
        }
        used += rows.len() as u64;
        for row in rows {
            let of_epoch = times.get_mut(*epoch as usize);
            let count = of_epoch.and_then(|of_epoch| of_epoch.get_mut(*row as usize));
            *count.ok_or(Error::Beyond {
                epoch: *epoch,
                row: *row,
            })? += 1;
        }
    }
    for (epoch, times) in (0..).zip(&times) {
        let mut wrong = (0..).zip(times).filter(|(_, times)| **times != 1);
        if let Some((row, times)) = wrong.next() {
            let wrong = 1 + wrong.count();
            return Err(Error::Times {
                epoch,
                row,
                times: *times,
                wrong,
                rows,
            });
        }
    }
    Ok(Summary {
        processes: journals.iter().filter(|lines| !lines.is_empty()).count(),
        rounds,
        used,
        void,
    })
}

/// The rounds, as recorded by the first worker of each.
fn rounds<'a>(lines: impl Iterator<Item = &'a Entry> + Clone) -> Result<Vec<Round>, Error> {
    let mut rounds: BTreeMap<CommitId, Round> = BTreeMap::new();
    let mut steps: Vec<(CommitId, u64)> = Vec::new();
    for line in lines {
        match line {
            Entry::Rows { micros, commit, .. } => steps.push((*commit, *micros)),
            Entry::Start {
                round, base, size, ..
            } => {
                let first = rounds.entry(*round).or_insert(Round {
                    id: *round,
                    base: *base,
                    size: *size,
                    pause: None,
                });
                if first.base != *base {
                    return Err(Error::Bases {
                        round: *round,
                        one: first.base,
                        other: *base,
                    });
                }
            }
        }
    }
    for round in rounds.values_mut() {
        let before = steps.iter().filter(|(commit, _)| *commit < round.id);
        let own = steps
            .iter()
            .filter(|(commit, _)| commit.round == round.id.round);
        if let (Some((_, last)), Some((_, first))) = (
            before.max_by_key(|(_, micros)| *micros),
            own.min_by_key(|(_, micros)| *micros),
        ) {
            round.pause = Some(Duration::from_micros(first.saturating_sub(*last)));
        }
    }
    Ok(rounds.into_values().collect())
}

fn read(directory: &Path) -> Result<Vec<Vec<Entry>>, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| Error::Read { path, source }
    };
    let entries = fs::read_dir(directory).map_err(failed(directory))?;
    let paths: BTreeSet<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()
        .map_err(failed(directory))?;
    if paths.is_empty() {
        return Err(Error::Empty {
            path: directory.to_owned(),
        });
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(failed(&path))?;
        let lines = (1..).zip(text.lines()).map(|(number, line)| {
            line.parse().map_err(|()| Error::Line {
                path: path.clone(),
                number,
                line: line.to_owned(),
            })
        });
        lines.collect()
    };
    paths.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journals(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (number, text) in files.iter().enumerate() {
            fs::write(directory.path().join(format!("{number}.txt")), text).unwrap();
        }
        directory
    }

    #[test]
    fn rows_of_void_commits_do_not_count() {
        let directory = journals(&[
            // Commit 2 was made here, but the worker died with it.
            "start 5 1.1.0 - 0 2 7\nrows 1000 1.1.1 0 0,1\nrows 3000 1.1.2 0 4\n",
            "start 5 1.1.0 - 1 2 8\nrows 1001 1.1.1 0 2,3\nrows 3010 1.1.2 0 5\nstart 3500 1.2.0 1.1.1 0 1 8\nrows 4510 1.2.1 0 4,5\n",
        ]);
        let summary = check(directory.path(), 6, 1).unwrap();
        assert_eq!((summary.processes, summary.used, summary.void), (2, 6, 2));
        let sizes: Vec<u32> = summary.rounds.iter().map(|round| round.size).collect();
        assert_eq!(sizes, [2, 1]);
        let pause = Some(Duration::from_micros(1500));
        assert_eq!(
            (summary.rounds[0].pause, summary.rounds[1].pause),
            (None, pause)
        );
    }

    #[test]
    fn rows_left_out_or_used_twice_are_found() {
        let directory =
            journals(&["start 5 1.1.0 - 0 1 7\nrows 9 1.1.1 0 0,1\nrows 9 1.1.2 0 1\n"]);
        let error = check(directory.path(), 3, 1).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Times {
                    row: 1,
                    times: 2,
                    wrong: 2,
                    ..
                }
            ),
            "{error}"
        );
        let error = check(directory.path(), 2, 2).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Times {
                    epoch: 0,
                    row: 1,
                    ..
                }
            ),
            "{error}"
        );
        let error = check(directory.path(), 1, 1).unwrap_err();
        assert!(
            matches!(error, Error::Beyond { epoch: 0, row: 1 }),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_journal_is_named() {
        let directory = journals(&[]);
        let error = check(directory.path(), 1, 1).unwrap_err();
        assert!(matches!(error, Error::Empty { .. }), "{error}");
        let directory = journals(&["start 5 1.1.0 - 0 1 7\nrow 1\n"]);
        let error = check(directory.path(), 1, 1).unwrap_err();
        assert!(matches!(error, Error::Line { number: 2, .. }), "{error}");
        let directory = journals(&["start 5 1.2.0 1.1.1 0 2 7\n", "start 5 1.2.0 1.1.2 1 2 8\n"]);
        let error = check(directory.path(), 1, 1).unwrap_err();
        assert!(matches!(error, Error::Bases { .. }), "{error}");
    }
}

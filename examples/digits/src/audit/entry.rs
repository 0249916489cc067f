//! The entries of a journal, as lines of text.
//!
//! ```text
//! start TIME ROUND BASE RANK SIZE PROCESS-ID
//! rows TIME COMMIT EPOCH ROW,ROW,...
//! ```
//! Times are microseconds since 1970, for people only. Commits are `driver epoch.round.count`. A
//! round is written as its commit 0. `-` means no base.

use std::{fmt, str::FromStr};

use elasticrun_worker::{CommitId, DriverEpoch, Round};

/// An entry of a journal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    Start {
        micros: u64,
        /// Commit 0 of the round.
        round: CommitId,
        base: Option<CommitId>,
        rank: u32,
        size: u32,
        pid: u32,
    },
    Rows {
        micros: u64,
        commit: CommitId,
        epoch: u64,
        rows: Vec<u64>,
    },
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start {
                micros,
                round,
                base,
                rank,
                size,
                pid,
            } => {
                let base = base.map_or("-".to_owned(), |base| base.to_string());
                write!(f, "start {micros} {round} {base} {rank} {size} {pid}")
            }
            Self::Rows {
                micros,
                commit,
                epoch,
                rows,
            } => {
                let rows: Vec<String> = rows.iter().map(u64::to_string).collect();
                write!(f, "rows {micros} {commit} {epoch} {}", rows.join(","))
            }
        }
    }
}

impl FromStr for Entry {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["start", micros, round, base, rank, size, pid] => Ok(Self::Start {
                micros: number(micros)?,
                round: commit(round)?,
                base: match base {
                    "-" => None,
                    base => Some(commit(base)?),
                },
                rank: number(rank)?,
                size: number(size)?,
                pid: number(pid)?,
            }),
            ["rows", micros, id, epoch, rows] => Ok(Self::Rows {
                micros: number(micros)?,
                commit: commit(id)?,
                epoch: number(epoch)?,
                rows: rows
                    .split(',')
                    .filter(|row| !row.is_empty())
                    .map(number)
                    .collect::<Result<_, ()>>()?,
            }),
            _ => Err(()),
        }
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, ()> {
    word.parse().map_err(|_| ())
}

fn commit(word: &str) -> Result<CommitId, ()> {
    let numbers: Vec<u64> = word.split('.').map(number).collect::<Result<_, ()>>()?;
    let [epoch, round, count] = numbers[..] else {
        return Err(());
    };
    Ok(CommitId {
        epoch: DriverEpoch(epoch),
        round: Round(round),
        count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let id = commit("1.2.3").unwrap();
        for line in [
            Entry::Start {
                micros: 1,
                round: id,
                base: None,
                rank: 0,
                size: 4,
                pid: 17,
            },
            Entry::Start {
                micros: 1,
                round: id,
                base: Some(id),
                rank: 3,
                size: 4,
                pid: 17,
            },
            Entry::Rows {
                micros: 2,
                commit: id,
                epoch: 5,
                rows: vec![],
            },
            Entry::Rows {
                micros: 2,
                commit: id,
                epoch: 5,
                rows: vec![7, 9],
            },
        ] {
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        for text in [
            "",
            "start",
            "rows 1 1.2 3 4",
            "rows 1 1.2.3 4 5,x",
            "start 1 1.2.3 - 0 4",
        ] {
            assert_eq!(text.parse::<Entry>(), Err(()), "{text}");
        }
    }
}

//! The audit log: which commit holds which rows. It proves to the user that each row was used exactly once.
//!
//! Each worker process writes one file with a line of JSON for each event. Here two of them are broken:
//!
//! ```text
//! {"round":3,"base":"1.2.7","epoch":0,"left":5,                 a round of this worker continues from a commit
//!  "dataset":{"digest":"0c..","reader":"5f..","groups":[[20,12],[9,1]]}}
//! {"commit":"1.3.1","epoch":0,"rows":{"0":[4,17],"12":[9]},     what it has processed for a commit
//!  "spans":{"0":[[0,3]],"12":[[8,9]]},"skipped":0}
//! {"sealed":"1.3.1","epoch":0,"left":1}                         the commit is sealed
//! ```
//!
//! - `reader` is the same in all workers. It tells apart data sets of the same files with another predicate, windows or seed.
//! - `groups` are the row groups of the data set as read: [rows, times].
//! - `epoch` and `left` are the position of all workers: the epoch, and its rows that are left.
//! - `rows` are the rows of batches, by row group.
//! - `spans` are the positions `lo..hi` in the order of the row group that were processed, also those of rows that a predicate
//!   has dropped. Each position of a row group is in one span.
//! - `left_out` are the positions that `drop_last` has left out of an epoch, as `spans`. In `sealed` lines it is the number of
//!   rows of all workers that it leaves out of this epoch, which has ended. Without `drop_last` there is neither.
//! - `skipped` counts those of `spans` that could not be read.
//!
//! Rows and spans are written before any worker can seal the commit, so each committed row is in a file. A commit is void
//! if it is newer than the base of a later round, or if no worker has sealed it. `elasticrun data audit` evaluates the
//! files.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use elasticrun_ledger::{Piece, Segment};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Batch, Dataset, ReaderOptions};

#[derive(Debug)]
pub(super) struct Audit {
    file: File,
    /// The data set as JSON.
    dataset: String,
    /// Since the last commit, by epoch.
    processed: BTreeMap<u64, Processed>,
    /// The commit that was reported last.
    reported: Option<String>,
}

/// What was processed of an epoch, by row group.
#[derive(Debug, Default)]
struct Processed {
    rows: BTreeMap<u32, Vec<u32>>,
    spans: BTreeMap<u32, Vec<(u32, u32)>>,
    /// Positions that are not processed, since they were no complete step.
    left_out: BTreeMap<u32, Vec<(u32, u32)>>,
    /// Positions of `spans` that could not be read.
    skipped: u64,
}

/// The epoch, and its rows that are left, in all workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochPosition {
    pub(super) epoch: u64,
    pub(super) left: u64,
    /// Rows that `drop_last` leaves out of the epoch, if it has ended.
    pub(super) left_out: u64,
}

impl Audit {
    pub(super) fn create(
        directory: &Path,
        dataset: &Dataset,
        options: &ReaderOptions,
    ) -> io::Result<Self> {
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
            dataset: describe(dataset, options),
            processed: BTreeMap::new(),
            reported: None,
        })
    }

    pub(super) fn read(&mut self, epoch: u64, batch: &Batch) {
        let processed = self.processed.entry(epoch).or_default();
        processed.skipped += batch.rows_skipped();
        for origin in batch.origins() {
            let group = batch.spans()[origin.span as usize].group;
            processed.rows.entry(group).or_default().push(origin.row);
        }
        for span in batch.spans() {
            let spans = processed.spans.entry(span.group).or_default();
            spans.push((span.lo, span.hi));
        }
    }

    /// The epoch has ended without these positions.
    pub(super) fn left_out(&mut self, epoch: u64, segments: impl Iterator<Item = Segment>) {
        for segment in segments {
            let Piece { group, lo, hi } = segment.piece;
            let left_out = &mut self.processed.entry(epoch).or_default().left_out;
            left_out.entry(group).or_default().push((lo, hi));
        }
    }

    pub(super) fn reported(&mut self, commit: &str) -> io::Result<()> {
        for (epoch, processed) in std::mem::take(&mut self.processed) {
            let Processed {
                rows,
                spans,
                left_out,
                skipped,
            } = processed;
            let rows: Vec<String> = (rows.into_iter())
                .map(|(group, rows)| format!("\"{group}\":{rows:?}"))
                .collect();
            let left_out = match left_out.is_empty() {
                true => String::new(),
                false => format!(",\"left_out\":{{{}}}", by_group(left_out)),
            };
            self.line(&format!(
                "{{\"commit\":\"{commit}\",\"epoch\":{epoch},\"rows\":{{{}}},\"spans\":{{{}}},\"skipped\":{skipped}{left_out}}}",
                rows.join(","),
                by_group(spans),
            ))?;
        }
        self.reported = Some(commit.to_owned());
        Ok(())
    }

    pub(super) fn sealed(&mut self, at: EpochPosition) -> io::Result<()> {
        let EpochPosition { epoch, left, .. } = at;
        let left_out = match at.left_out {
            0 => String::new(),
            rows => format!(",\"left_out\":{rows}"),
        };
        match self.reported.take() {
            Some(commit) => self.line(&format!(
                "{{\"sealed\":\"{commit}\",\"epoch\":{epoch},\"left\":{left}{left_out}}}"
            )),
            None => Ok(()),
        }
    }

    pub(super) fn round(
        &mut self,
        round: u64,
        base: Option<&str>,
        at: EpochPosition,
    ) -> io::Result<()> {
        self.rolled_back();
        let EpochPosition { epoch, left, .. } = at;
        let base = base.map_or("null".to_owned(), |base| format!("\"{base}\""));
        let dataset = &self.dataset;
        self.line(&format!(
            "{{\"round\":{round},\"base\":{base},\"epoch\":{epoch},\"left\":{left},\"dataset\":{dataset}}}"
        ))
    }

    pub(super) fn rolled_back(&mut self) {
        self.processed.clear();
        self.reported = None;
    }

    /// A single write, so that a killed process leaves no partial line.
    fn line(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}

/// The data set as JSON: its digest, the key of its reader, and its row groups, [rows, times].
fn describe(dataset: &Dataset, options: &ReaderOptions) -> String {
    let mut groups: Vec<(u32, u32)> = Vec::new();
    for group in dataset.groups() {
        match groups.last_mut() {
            Some((rows, times)) if *rows == group.rows => *times += 1,
            _ => groups.push((group.rows, 1)),
        }
    }
    let (digest, reader) = (dataset.identity(), reader_key(options));
    format!(
        "{{\"digest\":\"{digest:016x}\",\"reader\":\"{reader:016x}\",\"groups\":[{}]}}",
        pairs(&groups)
    )
}

/// Tells apart data sets of the same files in one job, by the options that decide which row is at a position, and which of
/// them are in a batch. A job keeps these options. It may resume in the other order, with other columns or another memory
/// budget.
fn reader_key(options: &ReaderOptions) -> u64 {
    let seed = options.shuffle.then_some(options.seed);
    let key = format!("{:?} {:?} {seed:?}", options.predicate, options.ngram);
    xxh3_64(key.as_bytes())
}

/// Spans by row group, as the entries of an object.
fn by_group(spans: BTreeMap<u32, Vec<(u32, u32)>>) -> String {
    let groups: Vec<String> = (spans.into_iter())
        .map(|(group, spans)| format!("\"{group}\":[{}]", pairs(&joined(spans))))
        .collect();
    groups.join(",")
}

/// Spans in order; adjacent ones become one. Spans that overlap stay, so that the audit finds them.
fn joined(mut spans: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    spans.sort_unstable();
    let mut result: Vec<(u32, u32)> = Vec::new();
    for (lo, hi) in spans {
        match result.last_mut() {
            Some(last) if last.1 == lo => last.1 = hi,
            _ if lo < hi => result.push((lo, hi)),
            _ => {}
        }
    }
    result
}

fn pairs(pairs: &[(u32, u32)]) -> String {
    let pairs: Vec<String> = (pairs.iter())
        .map(|(one, other)| format!("[{one},{other}]"))
        .collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::{joined, reader_key};
    use crate::{Predicate, ReaderOptions};

    #[test]
    fn readers_of_the_same_files_are_told_apart_by_what_they_read() {
        let where_null = |column: &str| ReaderOptions {
            predicate: Some(Predicate::IsNull {
                column: column.to_owned(),
            }),
            ..ReaderOptions::default()
        };
        let key = reader_key(&where_null("a"));
        for other in [
            where_null("b"),
            ReaderOptions::default(),
            ReaderOptions {
                seed: 1,
                ..where_null("a")
            },
            ReaderOptions {
                shuffle: false,
                ..where_null("a")
            },
        ] {
            assert_ne!(reader_key(&other), key, "{other:?}");
        }
        let resumed = ReaderOptions {
            memory: 1,
            threads: 7,
            columns: Some(vec!["c".to_owned()]),
            ..where_null("a")
        };
        assert_eq!(reader_key(&resumed), key);
    }

    #[test]
    fn adjacent_spans_are_one_and_repeated_ones_stay() {
        let spans = vec![(4, 6), (0, 2), (2, 4), (9, 9), (8, 9), (8, 9), (1, 3)];
        assert_eq!(joined(spans), [(0, 2), (1, 3), (2, 6), (8, 9), (8, 9)]);
    }
}

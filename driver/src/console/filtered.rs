//! `--duplicate-stdout-filters` and `--duplicate-stderr-filters`: lines of all workers in one file, DIR/filtered_stdout.log or
//! filtered_stderr.log.
//!
//! - A line has the prefix that it has on the console, or `[rank]<stdout>:` if it has none there.
//! - The file has lines that are not shown as well.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::PathBuf,
    time::SystemTime,
};

use elasticrun_protocol::{HostId, Process};

use super::{layout::write_prefix, queue::Piece};
use crate::config::{LineFilters, Prefix};

/// A line is cut after this number of bytes, so that a worker without line feeds takes no memory.
const MAX_LINE: usize = 64 << 10;

/// The file of one stream.
#[derive(Debug)]
pub(super) struct Filtered {
    filters: LineFilters,
    prefix: Prefix,
    path: PathBuf,
    /// `None` after a failed write, or when the limit is reached.
    file: Option<File>,
    written: u64,
    cap: u64,
    /// Lines without an end, by process.
    open: BTreeMap<(HostId, Process), OpenLine>,
}

/// The beginning of a line.
#[derive(Debug)]
struct OpenLine {
    prefix: Vec<u8>,
    text: Vec<u8>,
}

impl Filtered {
    /// The file `file` at `path`, which takes at most `cap` bytes.
    pub(super) fn new(
        filters: LineFilters,
        prefix: &Prefix,
        (path, file): (PathBuf, File),
        cap: u64,
    ) -> Self {
        let prefix = match prefix {
            Prefix::None => Prefix::Rank,
            prefix => prefix.clone(),
        };
        Self {
            filters,
            prefix,
            path,
            file: Some(file),
            written: 0,
            cap,
            open: BTreeMap::new(),
        }
    }

    /// Writes the lines that end in a piece of this stream. Returns the warning if the file is given up.
    pub(super) fn add(&mut self, piece: &Piece, now: SystemTime) -> Option<String> {
        self.file.as_ref()?;
        let source = (piece.host.clone(), piece.output.process);
        let prefix = || {
            let mut prefix = Vec::new();
            write_prefix(&self.prefix, piece, now, &mut prefix);
            prefix
        };
        let mut out = Vec::new();
        let mut open = self.open.remove(&source);
        for part in piece
            .output
            .as_bytes()
            .split_inclusive(|byte| *byte == b'\n')
        {
            for part in part.chunks(MAX_LINE) {
                let mut line = open.take().unwrap_or_else(|| OpenLine {
                    prefix: prefix(),
                    text: Vec::new(),
                });
                line.text.extend_from_slice(part);
                match part.ends_with(b"\n") || line.text.len() >= MAX_LINE {
                    true => line.end(&self.filters, &mut out),
                    false => open = Some(line),
                }
            }
        }
        if let Some(line) = open {
            self.open.insert(source, line);
        }
        self.write(&out)
    }

    /// Writes lines that have no end.
    pub(super) fn end(&mut self) -> Option<String> {
        let mut out = Vec::new();
        for line in std::mem::take(&mut self.open).into_values() {
            line.end(&self.filters, &mut out);
        }
        self.write(&out)
    }

    fn write(&mut self, bytes: &[u8]) -> Option<String> {
        let file = self.file.as_mut()?;
        self.written += bytes.len() as u64;
        let written = match self.written > self.cap {
            true => Err(io::Error::other(format!(
                "it holds {} bytes of this job, the most it may",
                self.cap
            ))),
            false => file.write_all(bytes),
        };
        let error = written.err()?;
        self.file = None;
        self.open.clear();
        Some(format!(
            "--output-filename {}: {error}; lines are no longer kept there",
            self.path.display()
        ))
    }
}

impl OpenLine {
    fn end(mut self, filters: &LineFilters, out: &mut Vec<u8>) {
        if self.text.ends_with(b"\n") {
            self.text.pop();
        }
        if filters.pass(&self.text) {
            out.extend(self.prefix);
            out.extend(self.text);
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::queue::tests::piece, *};
    use crate::config::Setting as _;

    /// What is written of these pieces. Each has the number of a start and its bytes.
    fn written(filters: &str, cap: u64, pieces: &[(u32, &str)]) -> (String, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("filtered_stdout.log");
        let file = File::create(&path).unwrap();
        let filters = LineFilters::read(&[filters.to_owned()]).unwrap();
        let mut filtered = Filtered::new(filters, &Prefix::None, (path.clone(), file), cap);
        let mut warnings = Vec::new();
        for (start, text) in pieces {
            let piece = piece(*start, false, text.as_bytes());
            warnings.extend(filtered.add(&piece, SystemTime::UNIX_EPOCH));
        }
        warnings.extend(filtered.end());
        (std::fs::read_to_string(path).unwrap(), warnings)
    }

    #[test]
    fn lines_with_a_text_are_written_however_they_are_cut() {
        let text = "loss 1\nacc 2\n\nno loss\nlast loss";
        let expected = "[1]<stdout>:loss 1\n[1]<stdout>:no loss\n[1]<stdout>:last loss\n";
        for size in 1..=text.len() {
            let pieces: Vec<_> = (text.as_bytes().chunks(size))
                .map(|part| (1, std::str::from_utf8(part).unwrap()))
                .collect();
            let found = written("loss", 1000, &pieces);
            assert_eq!(found, (expected.to_owned(), Vec::new()), "pieces of {size}");
        }
    }

    #[test]
    fn lines_of_two_processes_do_not_mix() {
        let pieces = [(1, "the l"), (2, "loss\nno"), (1, "oss\n"), (2, "thing\n")];
        let (text, _) = written("loss", 1000, &pieces);
        assert_eq!(text, "[1]<stdout>:loss\n[1]<stdout>:the loss\n");
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let long = format!("loss{}", "x".repeat(MAX_LINE - 4));
        let (text, _) = written("loss", 1 << 20, &[(1, &long), (1, &long[..10]), (1, "\n")]);
        assert_eq!(
            text,
            format!("[1]<stdout>:{long}\n[1]<stdout>:{}\n", &long[..10])
        );
    }

    #[test]
    fn a_file_at_its_limit_is_full_and_reported_once() {
        let (text, warnings) = written("x", 20, &[(1, "x1\n"), (1, "x2\n"), (1, "x3\n")]);
        assert_eq!(text, "[1]<stdout>:x1\n");
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("20 bytes of this job"), "{warnings:?}");
    }
}

//! How the bytes of several workers share one stream of the driver: each line begins with its prefix.
//!
//! - L1 Without prefixes, the bytes pass as they are.
//! - L2 With prefixes, a line has the bytes of one stream of one process. If another one writes while a line has no end,
//!   the line is ended first.
//! - L3 A carriage return begins the line anew, with its prefix, unless a line feed follows.

use std::{io::Write, time::SystemTime};

use elasticrun_protocol::{HostId, Process};

use super::{queue::Piece, timestamp::timestamp};
use crate::config::{Labels, Prefix};

/// The state of the last line.
#[derive(Debug)]
pub(super) struct Layout {
    prefix: Prefix,
    /// The stream whose line has no end yet.
    open: Option<Source>,
    /// The line has ended with a carriage return so far.
    returned: bool,
}

/// A stream of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Source {
    host: HostId,
    process: Process,
    stderr: bool,
}

impl Layout {
    pub(super) fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            open: None,
            returned: false,
        }
    }

    /// Whether the last line has no end.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Notes that another writer has ended the last line.
    pub(super) fn interrupted(&mut self) {
        self.open = None;
        self.returned = false;
    }

    /// Appends a piece to `out`. `now` is the time in the prefixes.
    pub(super) fn add(&mut self, piece: &Piece, now: SystemTime, out: &mut Vec<u8>) {
        let bytes = piece.output.as_bytes();
        let Some(last) = bytes.last() else { return };
        let source = Source {
            host: piece.host.clone(),
            process: piece.output.process,
            stderr: piece.output.stderr,
        };
        if self.prefix == Prefix::None {
            out.extend_from_slice(bytes);
        } else {
            if self.open.as_ref().is_some_and(|open| *open != source) {
                self.end(out);
            }
            self.add_lines(piece, now, out);
        }
        self.open = (*last != b'\n').then_some(source);
    }

    fn add_lines(&mut self, piece: &Piece, now: SystemTime, out: &mut Vec<u8>) {
        let mut begins = self.open.is_none();
        for part in piece
            .output
            .as_bytes()
            .split_inclusive(|byte| matches!(byte, b'\n' | b'\r'))
        {
            if begins || (self.returned && !matches!(part, b"\n" | b"\r")) {
                write_prefix(&self.prefix, piece, now, out);
            }
            out.extend_from_slice(part);
            begins = part.ends_with(b"\n");
            self.returned = part.ends_with(b"\r");
        }
    }

    /// Ends the last line if it has no end, except without prefixes.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if self.is_open() && self.prefix != Prefix::None {
            out.push(b'\n');
            self.interrupted();
        }
    }
}

/// Appends the prefix of a line that begins in this piece. Without prefixes it is that of the rank.
pub(super) fn write_prefix(prefix: &Prefix, piece: &Piece, now: SystemTime, out: &mut Vec<u8>) {
    if *prefix == Prefix::TimeAndRank {
        // Writing to a vector cannot fail.
        let _ = write!(out, "{} ", timestamp(now));
    }
    let output = &piece.output;
    if let Prefix::Template(template) = prefix {
        let labels = Labels {
            rank: output.rank,
            local_rank: output.process.local_rank.0,
            host: &piece.host,
        };
        template.write(&labels, out);
        return;
    }
    let stream = if output.stderr { "stderr" } else { "stdout" };
    let _ = match (output.process.server_number(), output.rank) {
        (Some(number), _) => write!(out, "[server {number}]<{stream}>:"),
        (None, Some(rank)) => write!(out, "[{rank}]<{stream}>:"),
        (None, None) => write!(out, "[-]<{stream}>:"),
    };
}

#[cfg(test)]
mod tests {
    use super::{super::queue::tests::piece, *};

    /// What the pieces look like. Each has the number of a start, a stream and its bytes.
    fn shown(prefix: Prefix, pieces: &[(u32, bool, &str)]) -> String {
        let (mut layout, mut out) = (Layout::new(prefix), Vec::new());
        for (start, stderr, text) in pieces {
            let piece = piece(*start, *stderr, text.as_bytes());
            layout.add(&piece, SystemTime::UNIX_EPOCH, &mut out);
        }
        layout.end(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_line_has_its_prefix_however_it_was_cut() {
        let text = "one\ntwo\r\n\nthree";
        let expected = "[1]<stdout>:one\n[1]<stdout>:two\r\n[1]<stdout>:\n[1]<stdout>:three\n";
        for size in 1..=text.len() {
            let pieces: Vec<_> = (text.as_bytes().chunks(size))
                .map(|part| (1, false, std::str::from_utf8(part).unwrap()))
                .collect();
            assert_eq!(shown(Prefix::Rank, &pieces), expected, "pieces of {size}");
        }
        let line = shown(Prefix::TimeAndRank, &[(1, true, "one\n")]);
        assert_eq!(line, "1970-01-01T00:00:00.000Z [1]<stderr>:one\n");
    }

    #[test]
    fn an_open_line_of_another_rank_is_ended_first() {
        let pieces = [
            (1, false, "name? "),
            (1, true, "warning\n"),
            (1, false, "again? "),
            (2, false, "a restarted worker\n"),
        ];
        assert_eq!(
            shown(Prefix::Rank, &pieces),
            "[1]<stdout>:name? \n[1]<stderr>:warning\n[1]<stdout>:again? \n[1]<stdout>:a restarted worker\n"
        );
    }

    #[test]
    fn a_carriage_return_begins_the_line_anew() {
        let pieces = [(1, true, "10%\r"), (1, true, "20%\r30%"), (1, true, "\n")];
        assert_eq!(
            shown(Prefix::Rank, &pieces),
            "[1]<stderr>:10%\r[1]<stderr>:20%\r[1]<stderr>:30%\n"
        );
    }

    #[test]
    fn without_prefixes_nothing_is_added() {
        let pieces = [(1, false, "a\rb"), (2, false, "c"), (1, false, "\n\nd")];
        assert_eq!(shown(Prefix::None, &pieces), "a\rbc\n\nd");
    }

    #[test]
    fn a_line_that_the_driver_ended_gets_its_prefix_again() {
        let (mut layout, mut out) = (Layout::new(Prefix::Rank), Vec::new());
        layout.add(&piece(1, false, b"a"), SystemTime::UNIX_EPOCH, &mut out);
        assert!(layout.is_open());
        layout.interrupted();
        layout.add(&piece(1, false, b"b"), SystemTime::UNIX_EPOCH, &mut out);
        assert_eq!(out, b"[1]<stdout>:a[1]<stdout>:b");
    }
}

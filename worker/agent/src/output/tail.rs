//! The last lines of a process, for the report of its exit.
//!
//! Each stream keeps half of them, if it has as many. The streams are read apart, so standard output that was printed before a
//! traceback may be read behind it.

use std::{collections::VecDeque, mem};

/// Lines kept of each process.
const LINES: usize = 20;

/// The largest number of characters kept of each line.
const WIDTH: usize = 500;

/// Bytes that hold [`WIDTH`] characters.
const MAX_LINE: usize = 4 * WIDTH;

/// The last lines of a process, of both streams in the order in which the lines were read.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<Line>,
    stdout: OpenLine,
    stderr: OpenLine,
}

#[derive(Debug)]
struct Line {
    is_stderr: bool,
    text: String,
}

impl Tail {
    /// Adds a piece of a stream.
    pub(super) fn push(&mut self, stderr: bool, piece: &[u8]) {
        let open = if stderr {
            &mut self.stderr
        } else {
            &mut self.stdout
        };
        let Some(end) = piece.iter().position(|byte| *byte == b'\n') else {
            return open.push(piece);
        };
        open.push(&piece[..end]);
        let text = open.take();
        add(&mut self.lines, stderr, text);
        // Of many whole lines only the last are looked at.
        let mut last = piece[end + 1..].rsplit(|byte| *byte == b'\n');
        let rest = last.next().unwrap_or_default();
        let last: Vec<_> = last.take(LINES).collect();
        for line in last.into_iter().rev() {
            open.push(line);
            let text = open.take();
            add(&mut self.lines, stderr, text);
        }
        open.push(rest);
    }

    /// The lines, oldest first. Lines without an end are the last.
    pub(super) fn take(&mut self) -> Vec<String> {
        for (is_stderr, open) in [(false, &mut self.stdout), (true, &mut self.stderr)] {
            if !open.0.is_empty() {
                let text = open.take();
                add(&mut self.lines, is_stderr, text);
            }
        }
        let lines = mem::take(&mut self.lines).into_iter();
        lines.map(|line| line.text).collect()
    }
}

fn add(lines: &mut VecDeque<Line>, is_stderr: bool, text: String) {
    lines.push_back(Line { is_stderr, text });
    if lines.len() > LINES {
        let of_stderr = lines.iter().filter(|line| line.is_stderr).count();
        let longer = of_stderr > LINES / 2;
        let oldest = lines.iter().position(|line| line.is_stderr == longer);
        lines.remove(oldest.unwrap_or_default());
    }
}

/// The beginning of a line: what a terminal shows of it. A carriage return replaces what is before it.
#[derive(Debug, Default)]
struct OpenLine(Vec<u8>);

impl OpenLine {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        // The text that the last carriage return began. Carriage returns at the end may be a part of the line's end.
        let end = (self.0.iter()).rposition(|byte| *byte != b'\r');
        let end = end.map_or(0, |last| last + 1);
        if let Some(at) = self.0[..end].iter().rposition(|byte| *byte == b'\r') {
            self.0.drain(..=at);
        }
        if self.0.len() > MAX_LINE {
            let returns = self.0.ends_with(b"\r");
            self.0.truncate(MAX_LINE);
            if returns {
                self.0.push(b'\r');
            }
        }
    }

    fn take(&mut self) -> String {
        let line = mem::take(&mut self.0);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        line.chars().take(WIDTH).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_lines() {
        let mut tail = Tail::default();
        for line in 0..30 {
            tail.push(false, format!("{line}\n").as_bytes());
        }
        tail.push(false, b"a\r\n\nb\n");
        tail.push(false, &b"x".repeat(10_000));
        let lines = tail.take();
        assert_eq!(lines.len(), LINES);
        assert_eq!(&lines[..2], ["14", "15"]);
        assert_eq!(&lines[16..19], ["a", "", "b"]);
        assert_eq!(lines[19].len(), WIDTH);
    }

    #[test]
    fn each_stream_keeps_half_of_the_lines() {
        let mut tail = Tail::default();
        for line in 0..30 {
            tail.push(true, format!("e{line}\n").as_bytes());
        }
        for line in 0..9 {
            tail.push(false, format!("o{line}\n").as_bytes());
        }
        assert_eq!(tail.lines[0].text, "e19");
        for line in 9..30 {
            tail.push(false, format!("o{line}\n").as_bytes());
        }
        let lines = tail.take();
        assert_eq!(lines.len(), LINES);
        assert_eq!((&*lines[0], &*lines[9]), ("e20", "e29"));
        assert_eq!((&*lines[10], &*lines[19]), ("o20", "o29"));
    }

    #[test]
    fn the_tail_of_one_large_piece() {
        let text: String = (0..1000).map(|line| format!("{line}\n")).collect();
        let mut tail = Tail::default();
        tail.push(true, text.as_bytes());
        let lines = tail.take();
        assert_eq!((lines.len(), lines[19].as_str()), (LINES, "999"));
    }

    #[test]
    fn a_line_that_comes_in_parts_is_one_line() {
        let mut tail = Tail::default();
        tail.push(false, b"one ");
        tail.push(true, b"err");
        tail.push(false, b"line\nnext");
        tail.push(true, b"or\n");
        assert_eq!(tail.take(), ["one line", "error", "next"]);
    }

    #[test]
    fn of_a_progress_bar_the_last_state_counts() {
        let text = b"\r10%\r20%\r30%\r\n\r1/2\r2/2\r";
        for size in 1..text.len() {
            let mut tail = Tail::default();
            for piece in text.chunks(size) {
                tail.push(true, piece);
            }
            assert_eq!(tail.take(), ["30%", "2/2"], "pieces of {size}");
        }
        let mut tail = Tail::default();
        tail.push(true, &b"x".repeat(10_000));
        tail.push(true, b"\r");
        tail.push(true, b"end");
        assert_eq!(tail.take(), ["end"]);
    }
}

//! Splits bytes into whole lines, and keeps the last ones.

use std::collections::VecDeque;

/// A longer line is cut into pieces of this size, each with a line end.
const MAX_LINE: usize = 64 * 1024;

/// Lines kept of each process for the report of its exit.
const TAIL_LINES: usize = 20;

/// The largest number of characters kept of each such line.
const TAIL_WIDTH: usize = 500;

/// Splits one stream into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The line that is not complete yet.
    part: Vec<u8>,
}

impl Lines {
    /// Adds bytes and returns the lines that are complete now, perhaps none.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::new();
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            whole.reserve(self.part.len() + end + 1);
            whole.append(&mut self.part);
            whole.extend_from_slice(&bytes[..=end]);
            self.part.extend_from_slice(&bytes[end + 1..]);
        } else {
            self.part.extend_from_slice(bytes);
        }
        while self.part.len() >= MAX_LINE {
            let cut = char_boundary(&self.part, MAX_LINE);
            whole.extend(self.part.drain(..cut));
            whole.push(b'\n');
        }
        whole
    }

    /// The incomplete line at the end of the stream.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.part)
    }
}

/// The largest position up to `limit` that is not within a character.
fn char_boundary(bytes: &[u8], limit: usize) -> usize {
    let inside = |pos: &usize| bytes.get(*pos).is_some_and(|byte| byte & 0xc0 == 0x80);
    (limit.saturating_sub(3)..=limit)
        .rev()
        .find(|pos| !inside(pos))
        .unwrap_or(limit)
}

/// The number of lines in a text. An incomplete line counts.
pub(super) fn count(text: &[u8]) -> u64 {
    let ends = text.iter().filter(|byte| **byte == b'\n').count() as u64;
    ends + u64::from(text.last().is_some_and(|byte| *byte != b'\n'))
}

/// The last lines of a process, of both streams in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Tail(VecDeque<String>);

impl Tail {
    /// Adds lines.
    pub(super) fn push(&mut self, text: &[u8]) {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let last: Vec<_> = text
            .rsplit(|byte| *byte == b'\n')
            .take(TAIL_LINES)
            .collect();
        for line in last.into_iter().rev() {
            if self.0.len() == TAIL_LINES {
                self.0.pop_front();
            }
            let line = &line[..line.len().min(4 * TAIL_WIDTH)];
            let line = String::from_utf8_lossy(line);
            let line = line.trim_end_matches('\r');
            self.0.push_back(line.chars().take(TAIL_WIDTH).collect());
        }
    }

    /// The lines, oldest first.
    pub(super) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        let text = b"one\ntwo\r\n\nthree, no end";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut got = Vec::new();
            for chunk in text.chunks(size) {
                let whole = lines.push(chunk);
                assert!(whole.is_empty() || whole.ends_with(b"\n"));
                got.extend(whole);
            }
            assert_eq!(got, b"one\ntwo\r\n\n");
            assert_eq!(lines.rest(), b"three, no end");
        }
    }

    #[test]
    fn a_line_without_end_goes_in_pieces_and_keeps_its_characters() {
        let mut lines = Lines::default();
        let text = "é".repeat(100_000);
        let mut got = Vec::new();
        for chunk in text.as_bytes().chunks(999) {
            got.extend(lines.push(chunk));
        }
        got.extend(lines.rest());
        let got = String::from_utf8(got).unwrap();
        assert_eq!(got.replace('\n', ""), text);
        assert!(got.split('\n').all(|line| line.len() <= MAX_LINE));
        assert_eq!(got.matches('\n').count(), 3);
    }

    #[test]
    fn the_tail_is_the_last_lines() {
        let mut tail = Tail::default();
        for line in 0..30 {
            tail.push(format!("{line}\n").as_bytes());
        }
        tail.push(b"a\r\n\nb");
        tail.push(&b"x".repeat(10_000));
        let lines = tail.take();
        assert_eq!(lines.len(), TAIL_LINES);
        assert_eq!(&lines[..2], ["14", "15"]);
        assert_eq!(&lines[16..19], ["a", "", "b"]);
        assert_eq!(lines[19].len(), TAIL_WIDTH);
    }

    #[test]
    fn a_line_without_end_counts() {
        assert_eq!(count(b""), 0);
        assert_eq!(count(b"a\nb\n"), 2);
        assert_eq!(count(b"a\nb"), 2);
    }
}

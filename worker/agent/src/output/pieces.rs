//! Splits the bytes of a stream into pieces for the driver: whole lines where they come fast, and parts of lines where
//! a worker pauses, as for a progress bar or a prompt.
//!
//! Invariant: the pieces of a stream together are its bytes. Nothing is added, changed or left out.

use std::{mem, time::Duration};

use tokio::time::Instant;

/// How long a piece waits for the end of its line. A program that writes a line in parts, as Python does without a buffer,
/// may be preempted for long between two of them on a busy machine. Another worker's output would then cut the line.
const LINE_TIMEOUT: Duration = Duration::from_millis(200);

/// The number of bytes at which a piece does not wait for the end of its line.
const MAX_PIECE: usize = 64 * 1024;

/// Splits one stream.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// The beginning of a line, without a line feed or carriage return.
    part: Vec<u8>,
    /// When `part` must go, if it is not empty.
    due: Option<Instant>,
}

impl Pieces {
    /// Adds bytes. Returns those that go to the driver now, perhaps none.
    pub(super) fn push(&mut self, bytes: &[u8], now: Instant) -> Vec<u8> {
        let end = bytes.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
        let (whole, part) = bytes.split_at(end.map_or(0, |end| end + 1));
        let mut piece = Vec::new();
        if !whole.is_empty() {
            piece = self.take();
            piece.extend_from_slice(whole);
        }
        self.part.extend_from_slice(part);
        if self.part.len() >= MAX_PIECE {
            let cut = char_boundary(&self.part, self.part.len());
            piece.extend(self.part.drain(..cut));
            self.due = None;
        }
        if self.part.is_empty() {
            self.due = None;
        } else {
            let due = *self.due.get_or_insert(now + LINE_TIMEOUT);
            if due <= now {
                piece.append(&mut self.take());
            }
        }
        piece
    }

    /// When [`Pieces::take`] must be called, unless bytes come before.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The bytes that wait for the end of their line.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.due = None;
        mem::take(&mut self.part)
    }
}

/// The largest position up to `limit` that is not within a character.
fn char_boundary(bytes: &[u8], limit: usize) -> usize {
    let tail = limit.saturating_sub(3);
    // The last byte that begins a character, and the length of that character.
    let last = bytes[tail..limit]
        .iter()
        .rposition(|byte| byte & 0xc0 != 0x80);
    let Some(last) = last.map(|last| tail + last) else {
        return limit;
    };
    let length = match bytes[last] {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..=0xff => 4,
        _ => 1,
    };
    if last + length > limit { last } else { limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of chunks that come without a pause.
    fn pieces<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        let now = Instant::now();
        let mut pieces = Pieces::default();
        let mut got: Vec<_> = (chunks.into_iter())
            .map(|chunk| pieces.push(chunk, now))
            .collect();
        got.push(pieces.take());
        assert_eq!(pieces.due(), None);
        got
    }

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        let text = b"one\ntwo\r\n\nthree, no end";
        for size in 1..text.len() {
            let mut got = pieces(text.chunks(size));
            assert_eq!(got.concat(), text);
            assert_eq!(got.pop().unwrap(), b"three, no end");
            assert!((got.iter()).all(|piece| matches!(piece.last(), None | Some(b'\n' | b'\r'))));
        }
    }

    #[test]
    fn nothing_is_added() {
        let text = "é".repeat(100_000);
        let got = pieces(text.as_bytes().chunks(999));
        assert_eq!(got.concat(), text.as_bytes());
        assert_eq!(got.iter().filter(|piece| !piece.is_empty()).count(), 4);
        let no_text: Vec<u8> = (0..=255).cycle().take(200_000).collect();
        assert_eq!(pieces(no_text.chunks(4096)).concat(), no_text);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        for text in ["é", "€", "🦀", "a🦀"] {
            let text = text.repeat(60_000);
            for piece in pieces(text.as_bytes().chunks(997)) {
                assert!(piece.len() <= MAX_PIECE + 997);
                String::from_utf8(piece).unwrap();
            }
        }
    }

    #[test]
    fn a_carriage_return_ends_a_piece() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.push(b"10%\r20%\r30", Instant::now()), b"10%\r20%\r");
    }

    #[test]
    fn the_beginning_of_a_line_waits_for_the_timeout_only() {
        let now = Instant::now();
        let mut pieces = Pieces::default();
        assert!(pieces.push(b"name", now).is_empty());
        assert_eq!(pieces.due(), Some(now + LINE_TIMEOUT));
        // Further bytes do not put the time off.
        assert!(pieces.push(b"?", now + LINE_TIMEOUT / 2).is_empty());
        assert_eq!(pieces.due(), Some(now + LINE_TIMEOUT));
        assert_eq!(pieces.push(b" ", now + LINE_TIMEOUT), b"name? ");
        assert_eq!(pieces.due(), None);
    }
}

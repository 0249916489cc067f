//! A bit stream that is read from its end.

/// The highest set bit of the last byte marks the start of the stream.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Remaining bits. Negative if more bits were read than exist; those are zeros.
    left: isize,
}

impl<'a> Bits<'a> {
    /// `None` if the mark is missing.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let mark = bytes.last()?.checked_ilog2()?;
        let before = bytes.len().checked_sub(1)? * 8;
        Self::with_left(bytes, (before + mark as usize).cast_signed())
    }

    /// A stream of which `left` bits are not read yet.
    pub(super) fn with_left(bytes: &'a [u8], left: isize) -> Option<Self> {
        (left <= (bytes.len() * 8).cast_signed()).then_some(Self { bytes, left })
    }

    pub(super) fn left(self) -> isize {
        self.left
    }

    /// The next `count` bits, the first one as the most significant.
    pub(super) fn peek(self, count: u32) -> usize {
        let bit = |pos: isize| {
            let pos = usize::try_from(pos).ok()?;
            Some(self.bytes.get(pos / 8)? >> (pos % 8) & 1)
        };
        (1..=count as isize).fold(0, |value, step| {
            value << 1 | usize::from(bit(self.left - step).unwrap_or(0))
        })
    }

    pub(super) fn skip(&mut self, count: u32) {
        self.left -= count as isize;
    }

    pub(super) fn take(&mut self, count: u32) -> usize {
        let value = self.peek(count);
        self.skip(count);
        value
    }
}

//! A stream of bits that is read from its end.

/// Its last byte says by its highest bit where it begins.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// How many are left. Less than none if more were taken than there were, which are zeros.
    left: isize,
}

impl<'a> Bits<'a> {
    /// Nothing if there is no bit that says where it begins.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let mark = bytes.last()?.checked_ilog2()?;
        let before = bytes.len().checked_sub(1)? * 8;
        Self::with_left(bytes, (before + mark as usize).cast_signed())
    }

    /// Of which some were read before.
    pub(super) fn with_left(bytes: &'a [u8], left: isize) -> Option<Self> {
        (left <= (bytes.len() * 8).cast_signed()).then_some(Self { bytes, left })
    }

    pub(super) fn left(self) -> isize {
        self.left
    }

    /// The next `count` bits, the first of them as the highest.
    pub(super) fn peek(self, count: u32) -> usize {
        let bit = |at: isize| {
            let at = usize::try_from(at).ok()?;
            Some(self.bytes.get(at / 8)? >> (at % 8) & 1)
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

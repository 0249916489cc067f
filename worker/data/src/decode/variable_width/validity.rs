//! Validity bits, which only exist from the first null on.

use arrow_buffer::{BooleanBufferBuilder, NullBuffer};

/// Validity bits that grow.
#[derive(Debug, Default)]
pub(super) struct Validity {
    count: usize,
    bits: Option<BooleanBufferBuilder>,
}

impl Validity {
    pub(super) fn append(&mut self, count: usize, is_valid: bool) {
        if !is_valid && self.bits.is_none() && count > 0 {
            let mut bits = BooleanBufferBuilder::new(self.count + count);
            bits.append_n(self.count, true);
            self.bits = Some(bits);
        }
        if let Some(bits) = &mut self.bits {
            bits.append_n(count, is_valid);
        }
        self.count += count;
    }

    /// `None` without a null.
    pub(super) fn finish(self) -> Option<NullBuffer> {
        self.bits.map(|mut bits| NullBuffer::new(bits.finish()))
    }
}

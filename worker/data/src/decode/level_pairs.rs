//! Repetition and definition levels of a page, both at once.
//!
//! Source: the paper on Dremel, and Encodings.md of Apache Parquet. Levels here have at most two bits: lists that are not nested.

use super::hybrid::{Run, Runs};

/// Passes the levels of a page to `emit`: the repetition level, the definition level, and how many values have both. `emit`
/// returns `None` to end. Equal levels that are stored as runs are one call.
///
/// `None` if bytes are missing, if a run is refused, or if `emit` ends.
#[inline]
pub(super) fn each_pair(
    repetition: Option<&[u8]>,
    definition: Option<(&[u8], u32)>,
    values: usize,
    mut emit: impl FnMut(u32, u32, usize) -> Option<()>,
) -> Option<()> {
    let mut repetition = Cursor::new(repetition.map(|bytes| (bytes, 1)), values);
    let mut definition = Cursor::new(definition, values);
    let mut left = values;
    while left > 0 {
        let count = repetition.fill()?.min(definition.fill()?);
        match (repetition.run, definition.run) {
            (Run::Same { value: r, .. }, Run::Same { value: d, .. }) => emit(r, d, count)?,
            (Run::Packed { bytes, .. }, Run::Same { value: d, .. }) => {
                for index in 0..count {
                    emit(repetition.packed(bytes, index)?, d, 1)?;
                }
            }
            (Run::Same { value: r, .. }, Run::Packed { bytes, .. }) => {
                for index in 0..count {
                    emit(r, definition.packed(bytes, index)?, 1)?;
                }
            }
            (Run::Packed { bytes: r, .. }, Run::Packed { bytes: d, .. }) => {
                for index in 0..count {
                    let pair = (repetition.packed(r, index)?, definition.packed(d, index)?);
                    emit(pair.0, pair.1, 1)?;
                }
            }
        }
        repetition.used += count;
        definition.used += count;
        left -= count;
    }
    Some(())
}

/// A position in the levels of one kind.
struct Cursor<'a> {
    runs: Runs<'a>,
    width: u32,
    run: Run<'a>,
    /// Levels of the run that were passed on.
    used: usize,
}

impl<'a> Cursor<'a> {
    /// Without bytes, all levels are 0.
    fn new(levels: Option<(&'a [u8], u32)>, values: usize) -> Self {
        let (bytes, width) = levels.unwrap_or_default();
        debug_assert!(width <= 2, "a level may cross two bytes");
        let count = if levels.is_none() { values } else { 0 };
        Self {
            runs: Runs::new(bytes, width, values),
            width,
            run: Run::Same { value: 0, count },
            used: 0,
        }
    }

    /// Goes to the next run at the end of one. Returns how many levels are left in it, at least one.
    fn fill(&mut self) -> Option<usize> {
        loop {
            let (Run::Same { count, .. } | Run::Packed { count, .. }) = self.run;
            if self.used < count {
                return Some(count - self.used);
            }
            self.run = self.runs.next()??;
            self.used = 0;
        }
    }

    /// A level of a packed run, from the next one on.
    #[inline]
    fn packed(&self, bytes: &[u8], index: usize) -> Option<u32> {
        let bit = (self.used + index) * self.width as usize;
        let mask = (1_u32 << self.width) - 1;
        Some(u32::from(*bytes.get(bit / 8)?) >> (bit % 8) & mask)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(
        repetition: Option<&[u8]>,
        definition: Option<(&[u8], u32)>,
        values: usize,
    ) -> Option<Vec<(u32, u32)>> {
        let mut pairs = Vec::new();
        each_pair(repetition, definition, values, |r, d, count| {
            pairs.extend(std::iter::repeat_n((r, d), count));
            Some(())
        })?;
        Some(pairs)
    }

    #[test]
    fn runs_and_bits_may_begin_anywhere() {
        // 0 1 1 0 as bits (a group of eight), then six times 1; twice 2, then 0 1 2 3 3 2 1 0 as bits.
        let repetition = [0x03, 0b0110, 0x04, 1];
        let definition = [0x04, 2, 0x03, 0b1110_0100, 0b0001_1011];
        let found = pairs(Some(&repetition), Some((&definition, 2)), 10).unwrap();
        let (r, d): (Vec<u32>, Vec<u32>) = found.into_iter().unzip();
        assert_eq!(r, [0, 1, 1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(d, [2, 2, 0, 1, 2, 3, 3, 2, 1, 0]);
    }

    #[test]
    fn levels_that_do_not_exist_are_0() {
        assert_eq!(pairs(None, None, 2), Some(vec![(0, 0), (0, 0)]));
        assert_eq!(pairs(None, Some((&[0x04, 1], 1)), 2).unwrap(), [(0, 1); 2]);
        assert_eq!(pairs(Some(&[0x04, 1]), None, 3), None, "cut");
    }

    #[test]
    fn equal_runs_are_one_call() {
        let mut calls = 0;
        // 2^31 - 1 levels.
        let run = [0xfe, 0xff, 0xff, 0xff, 0x0f, 0x01];
        let all = each_pair(
            Some(&run),
            Some((&run, 1)),
            i32::MAX as usize,
            |r, d, count| {
                calls += 1;
                assert_eq!((r, d, count), (1, 1, i32::MAX as usize));
                Some(())
            },
        );
        assert_eq!((all, calls), (Some(()), 1));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            repetition in prop::collection::vec(any::<u8>(), 0..60),
            definition in prop::collection::vec(any::<u8>(), 0..60),
            width in 1..=2_u32,
            values in 0..1000_usize,
        ) {
            if let Some(found) = pairs(Some(&repetition), Some((&definition, width)), values) {
                prop_assert_eq!(found.len(), values);
            }
        }
    }
}

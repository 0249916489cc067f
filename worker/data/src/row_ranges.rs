//! A subset of the rows of a row group, as ranges.

use std::ops::Range;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};

/// A subset of the rows of a row group. If only these rows are in memory, it maps a row to its index there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowRanges {
    /// Sorted, not adjacent, and not empty.
    ranges: Vec<Range<u32>>,
    /// Number of rows before each range.
    before: Vec<u32>,
    length: u32,
}

impl RowRanges {
    /// Takes sorted ranges, and merges adjacent ones.
    pub(crate) fn new(given: impl IntoIterator<Item = Range<u32>>) -> Self {
        Self::bridging(given, 0)
    }

    /// Takes sorted ranges, and merges those with at most `gap` rows between them.
    pub(crate) fn bridging(given: impl IntoIterator<Item = Range<u32>>, gap: u32) -> Self {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for range in given.into_iter().filter(|range| !range.is_empty()) {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(gap) => {
                    last.end = last.end.max(range.end);
                }
                _ => ranges.push(range),
            }
        }
        let mut length = 0;
        let before = ranges.iter().map(|range| {
            let before = length;
            length += range.end - range.start;
            before
        });
        Self {
            before: before.collect(),
            length,
            ranges,
        }
    }

    pub(crate) fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// Number of rows.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    /// The index of a row within the subset, which must contain it.
    #[inline]
    pub(crate) fn index_of(&self, row: u32) -> u32 {
        let after = self.ranges.partition_point(|range| range.start <= row);
        let range = after.saturating_sub(1);
        self.before[range] + (row - self.ranges[range].start)
    }

    /// Expands values for the rows of the subset to all `rows` rows. Other rows get `false`.
    pub(crate) fn spread(&self, values: &BooleanBuffer, rows: u32) -> BooleanBuffer {
        let mut spread = BooleanBufferBuilder::new(rows as usize);
        for (range, before) in self.ranges.iter().zip(&self.before) {
            spread.append_n(range.start as usize - spread.len(), false);
            let length = (range.end - range.start) as usize;
            spread.append_buffer(&values.slice(*before as usize, length));
        }
        spread.append_n(rows as usize - spread.len(), false);
        spread.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let rows = RowRanges::new([0..3, 3..5, 5..5, 8..9]);
        assert_eq!(rows.ranges(), [0..5, 8..9]);
        assert_eq!(rows.length(), 6);
        assert_eq!(
            RowRanges::bridging([0..3, 5..6, 9..10], 2).ranges(),
            [0..6, 9..10]
        );
        assert_eq!(RowRanges::new([]).length(), 0);
    }

    #[test]
    fn each_row_has_its_place() {
        let rows = RowRanges::new([2..4, 10..13]);
        let indices: Vec<u32> = [2, 3, 10, 11, 12].map(|row| rows.index_of(row)).into();
        assert_eq!(indices, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn values_are_spread_over_all_rows() {
        let rows = RowRanges::new([1..3, 5..6]);
        let values = BooleanBuffer::from_iter([true, false, true]);
        let spread: Vec<usize> = rows.spread(&values, 8).set_indices().collect();
        assert_eq!(spread, [1, 5]);
        assert_eq!(rows.spread(&values, 8).len(), 8);
    }
}

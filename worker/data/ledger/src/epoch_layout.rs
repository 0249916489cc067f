//! The order of the rows of an epoch.

use std::ops::Range;

use elasticrun_core::random::Random;

/// What determines the order of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shuffle {
    /// The seed of the job.
    pub seed: u64,
    /// The epoch, from 0. Each epoch has its own order.
    pub epoch: u64,
}

/// The epoch order: the row groups of an epoch in the order in which they are read, end to end.
///
/// A row of the epoch is an index into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EpochLayout {
    /// Row groups in the order of this epoch.
    sequence: Vec<u32>,
    /// The first row of each element of `sequence`, and the number of all rows at the end.
    starts: Vec<u64>,
}

/// A part of one row group: the rows at the positions `lo..hi` of its permutation.
///
/// The processed part of a piece is always a prefix, so one number describes the progress.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Piece {
    /// The row group: its index over all files of the data set.
    pub group: u32,
    /// The first position.
    pub lo: u32,
    /// The position after the last one.
    pub hi: u32,
}

impl Piece {
    /// Number of rows.
    pub fn rows(&self) -> u32 {
        self.hi.saturating_sub(self.lo)
    }
}

/// A piece and its location in the epoch order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The rows.
    pub piece: Piece,
    /// The first of them, as an index into the epoch order.
    pub start: u64,
}

impl Segment {
    /// The rows as a range of the epoch order.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + u64::from(self.piece.rows())
    }
}

/// Separates the random numbers of this module from other uses of the same key.
const PURPOSE: u64 = 0x6c69_6e65;

impl EpochLayout {
    /// The layout of row groups with the given numbers of rows. Without a shuffle they keep the order of the data set.
    ///
    /// Needs 12 bytes for each row group.
    pub fn new(groups: &[u32], shuffle: Option<Shuffle>) -> Self {
        let mut sequence: Vec<u32> = (0..groups.len() as u32).collect();
        if let Some(Shuffle { seed, epoch }) = shuffle {
            Random::keyed(&[PURPOSE, seed, epoch]).shuffle(&mut sequence);
        }
        let mut starts = Vec::with_capacity(groups.len() + 1);
        let mut end = 0;
        starts.push(end);
        for group in &sequence {
            end += u64::from(groups[*group as usize]);
            starts.push(end);
        }
        Self { sequence, starts }
    }

    /// Rows of the epoch.
    pub fn rows(&self) -> u64 {
        self.starts[self.sequence.len()]
    }

    /// The segments of a range of the epoch order, one for each row group, in order.
    ///
    /// # Panics
    /// If the range ends after the last row.
    pub fn segments(&self, range: Range<u64>) -> impl Iterator<Item = Segment> + '_ {
        assert!(
            range.is_empty() || range.end <= self.rows(),
            "rows {range:?} of {}",
            self.rows()
        );
        let mut row = range.start;
        // An empty row group starts at the same row as its successor.
        let mut next = self.starts.partition_point(|start| *start <= row);
        std::iter::from_fn(move || {
            if row >= range.end {
                return None;
            }
            while self.starts[next] <= row {
                next += 1;
            }
            let start = self.starts[next - 1];
            let end = self.starts[next].min(range.end);
            let piece = Piece {
                group: self.sequence[next - 1],
                lo: (row - start) as u32,
                hi: (end - start) as u32,
            };
            let segment = Segment { piece, start: row };
            row = end;
            Some(segment)
        })
    }

    /// The first boundary between two row groups at `row` or after it.
    pub(super) fn next_boundary(&self, row: u64) -> u64 {
        let index = self.starts.partition_point(|start| *start < row);
        self.starts[index.min(self.sequence.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_split_at_the_boundaries_of_row_groups() {
        let layout = EpochLayout::new(&[3, 0, 4, 0], None);
        assert_eq!(layout.rows(), 7);
        let segments: Vec<_> = layout.segments(1..6).collect();
        let expected = [(0, 1, 3, 1), (2, 0, 3, 3)].map(|(group, lo, hi, start)| Segment {
            piece: Piece { group, lo, hi },
            start,
        });
        assert_eq!(segments, expected);
        assert_eq!(layout.segments(7..7).count(), 0);
        assert_eq!(layout.segments(3..3).count(), 0);
    }

    #[test]
    fn a_layout_without_rows_has_no_pieces() {
        for groups in [&[][..], &[0, 0]] {
            let layout = EpochLayout::new(groups, Some(Shuffle { seed: 1, epoch: 0 }));
            assert_eq!(
                (
                    layout.rows(),
                    layout.segments(0..0).count(),
                    layout.next_boundary(0)
                ),
                (0, 0, 0)
            );
        }
    }

    #[test]
    fn each_epoch_has_its_own_order_and_each_group_once() {
        let groups: Vec<u32> = (1..100).collect();
        let order = |seed, epoch| {
            let layout = EpochLayout::new(&groups, Some(Shuffle { seed, epoch }));
            layout
                .segments(0..layout.rows())
                .map(|segment| segment.piece.group)
                .collect::<Vec<_>>()
        };
        let mut first = order(7, 0);
        assert_ne!(first, order(7, 1));
        assert_ne!(first, order(8, 0));
        assert_eq!(first, order(7, 0));
        first.sort_unstable();
        assert!(first.into_iter().eq(0..99));
    }

    #[test]
    fn boundaries_are_found() {
        let layout = EpochLayout::new(&[3, 0, 4], None);
        let boundaries: Vec<u64> = (0..8).map(|start| layout.next_boundary(start)).collect();
        assert_eq!(boundaries, [0, 3, 3, 3, 7, 7, 7, 7]);
    }
}

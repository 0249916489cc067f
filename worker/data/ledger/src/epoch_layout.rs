//! The rows of an epoch, laid out on a line.

use std::ops::Range;

use elasticrun_core::random::Random;

/// What makes the order of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shuffle {
    /// The seed of the job.
    pub seed: u64,
    /// The epoch, from 0: each has an order of its own.
    pub epoch: u64,
}

/// The row groups of an epoch in the order in which they are read, end to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Row groups in the order of this epoch.
    sequence: Vec<u32>,
    /// Where each place of the sequence starts, in rows; one more entry for the end.
    starts: Vec<u64>,
}

/// A part of one row group: the rows at the positions `lo..hi` of its order.
///
/// What is processed of a piece is a prefix of it, so a number says how far it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Piece {
    /// The row group: its index over all files of the data set.
    pub group: u32,
    /// The first position.
    pub lo: u32,
    /// The position behind the last one.
    pub hi: u32,
}

impl Piece {
    /// Number of rows.
    pub fn rows(&self) -> u32 {
        self.hi.saturating_sub(self.lo)
    }
}

/// A piece, and where it lies on the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// The rows.
    pub piece: Piece,
    /// Where the first of them lies.
    pub at: u64,
}

impl Stretch {
    /// All of it on the line.
    pub fn range(&self) -> Range<u64> {
        self.at..self.at + u64::from(self.piece.rows())
    }
}

/// Tells this use of a key from others.
const PURPOSE: u64 = 0x6c69_6e65;

impl Line {
    /// The line of row groups with so many rows each; without a shuffle they come in the order of the data set.
    ///
    /// Grows with the number of row groups, 12 bytes each.
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

    /// The stretches that a range of the line consists of, one in each row group, in order.
    ///
    /// # Panics
    /// If the range is not on the line.
    pub fn stretches(&self, range: Range<u64>) -> impl Iterator<Item = Stretch> + '_ {
        assert!(
            range.is_empty() || range.end <= self.rows(),
            "rows {range:?} of {}",
            self.rows()
        );
        let mut at = range.start;
        // Empty row groups start where the next one does.
        let mut place = self.starts.partition_point(|start| *start <= at);
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            while self.starts[place] <= at {
                place += 1;
            }
            let start = self.starts[place - 1];
            let end = self.starts[place].min(range.end);
            let piece = Piece {
                group: self.sequence[place - 1],
                lo: (at - start) as u32,
                hi: (end - start) as u32,
            };
            let stretch = Stretch { piece, at };
            at = end;
            Some(stretch)
        })
    }

    /// The first border between two row groups at `at` or behind it.
    pub(super) fn border(&self, at: u64) -> u64 {
        let place = self.starts.partition_point(|start| *start < at);
        self.starts[place.min(self.sequence.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_the_borders_of_row_groups() {
        let line = Line::new(&[3, 0, 4, 0], None);
        assert_eq!(line.rows(), 7);
        let stretches: Vec<_> = line.stretches(1..6).collect();
        let expected = [(0, 1, 3, 1), (2, 0, 3, 3)].map(|(group, lo, hi, at)| Stretch {
            piece: Piece { group, lo, hi },
            at,
        });
        assert_eq!(stretches, expected);
        assert_eq!(line.stretches(7..7).count(), 0);
        assert_eq!(line.stretches(3..3).count(), 0);
    }

    #[test]
    fn a_line_without_rows_has_no_pieces() {
        for groups in [&[][..], &[0, 0]] {
            let line = Line::new(groups, Some(Shuffle { seed: 1, epoch: 0 }));
            assert_eq!(
                (line.rows(), line.stretches(0..0).count(), line.border(0)),
                (0, 0, 0)
            );
        }
    }

    #[test]
    fn each_epoch_has_its_own_order_and_each_group_once() {
        let groups: Vec<u32> = (1..100).collect();
        let order = |seed, epoch| {
            let line = Line::new(&groups, Some(Shuffle { seed, epoch }));
            line.stretches(0..line.rows())
                .map(|stretch| stretch.piece.group)
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
    fn borders_are_found() {
        let line = Line::new(&[3, 0, 4], None);
        let borders: Vec<u64> = (0..8).map(|at| line.border(at)).collect();
        assert_eq!(borders, [0, 3, 3, 3, 7, 7, 7, 7]);
    }
}

//! The remaining rows of a share while the reader processes it.

use elasticrun_ledger::{EpochLayout, Segment, Share};

use crate::Span;

/// The remaining rows of a share. The reader opens its pieces in order, and takes rows from any open piece.
#[derive(Debug, Default)]
pub(super) struct RemainingRows {
    /// The rest of each open piece.
    open: Vec<Segment>,
    /// The ranges that are not opened yet.
    unopened: Share,
}

impl RemainingRows {
    pub(super) fn new(share: Share) -> Self {
        Self {
            open: Vec::new(),
            unopened: share,
        }
    }

    /// Records that rows were taken from the front of a piece.
    pub(super) fn processed(&mut self, layout: &EpochLayout, span: &Span) {
        let matches = |open: &Segment| open.piece.group == span.group && open.piece.lo == span.lo;
        let index = loop {
            if let Some(index) = self.open.iter().position(matches) {
                break index;
            }
            let next = (self.unopened.ranges().first())
                .and_then(|range| layout.segments(range.clone()).next());
            let Some(next) = next else {
                // The ledger then rejects the share.
                debug_assert!(false, "rows {span:?} were not assigned");
                return;
            };
            let range = next.range();
            self.unopened = self.unopened.without_first(range.end - range.start);
            self.open.push(next);
        };
        let open = &mut self.open[index];
        open.start += u64::from(span.hi - span.lo);
        open.piece.lo = span.hi;
        if open.piece.rows() == 0 {
            self.open.remove(index);
        }
    }

    /// The remaining rows.
    pub(super) fn left(&self) -> Share {
        let open = self.open.iter().map(Segment::range);
        open.chain(self.unopened.ranges().iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(group: u32, lo: u32, hi: u32) -> Span {
        Span { group, lo, hi }
    }

    #[test]
    fn rows_are_taken_from_any_open_piece() {
        let layout = EpochLayout::new(&[10, 10, 10, 10], None);
        let mut remaining = RemainingRows::new([5..25, 30..38].into_iter().collect());
        remaining.processed(&layout, &span(1, 0, 3));
        assert_eq!(remaining.left().ranges(), [5..10, 13..25, 30..38]);
        remaining.processed(&layout, &span(0, 5, 10));
        remaining.processed(&layout, &span(1, 3, 4));
        assert_eq!(remaining.left().ranges(), [14..25, 30..38]);
        // The last piece begins in the middle of its row group, and ends there.
        remaining.processed(&layout, &span(3, 0, 8));
        assert_eq!(remaining.left().ranges(), std::slice::from_ref(&(14..25)));
    }

    #[test]
    fn two_pieces_of_one_row_group_are_two() {
        let layout = EpochLayout::new(&[10], None);
        let mut remaining = RemainingRows::new([6..8, 0..4].into_iter().collect());
        remaining.processed(&layout, &span(0, 0, 1));
        remaining.processed(&layout, &span(0, 6, 7));
        assert_eq!(remaining.left().ranges(), [7..8, 1..4]);
    }
}

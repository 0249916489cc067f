//! What is left of a share while the reader goes through it.

use elasticrun_ledger::{Line, Share, Stretch};

use crate::Span;

/// The reader opens the pieces of a share in order, and takes rows from any of those that are open.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// What is left of the pieces that are open.
    open: Vec<Stretch>,
    /// What is not opened yet.
    behind: Share,
}

impl Work {
    pub(super) fn new(share: Share) -> Self {
        Self {
            open: Vec::new(),
            behind: share,
        }
    }

    /// Rows were taken from the front of a piece.
    pub(super) fn processed(&mut self, line: &Line, span: &Span) {
        let is_it = |open: &Stretch| open.piece.group == span.group && open.piece.lo == span.lo;
        let place = loop {
            if let Some(place) = self.open.iter().position(is_it) {
                break place;
            }
            let next = (self.behind.ranges().first())
                .and_then(|range| line.stretches(range.clone()).next());
            let Some(next) = next else {
                // The share that results is refused then.
                debug_assert!(false, "rows {span:?} were not assigned");
                return;
            };
            let range = next.range();
            self.behind = self.behind.behind(range.end - range.start);
            self.open.push(next);
        };
        let open = &mut self.open[place];
        open.at += u64::from(span.hi - span.lo);
        open.piece.lo = span.hi;
        if open.piece.rows() == 0 {
            self.open.remove(place);
        }
    }

    /// What is left.
    pub(super) fn left(&self) -> Share {
        let open = self.open.iter().map(Stretch::range);
        open.chain(self.behind.ranges().iter().cloned()).collect()
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
        let line = Line::new(&[10, 10, 10, 10], None);
        let mut work = Work::new([5..25, 30..38].into_iter().collect());
        work.processed(&line, &span(1, 0, 3));
        assert_eq!(work.left().ranges(), [5..10, 13..25, 30..38]);
        work.processed(&line, &span(0, 5, 10));
        work.processed(&line, &span(1, 3, 4));
        assert_eq!(work.left().ranges(), [14..25, 30..38]);
        // The last piece begins in the midst of its row group, and ends there.
        work.processed(&line, &span(3, 0, 8));
        assert_eq!(work.left().ranges(), std::slice::from_ref(&(14..25)));
    }

    #[test]
    fn two_pieces_of_one_row_group_are_two() {
        let line = Line::new(&[10], None);
        let mut work = Work::new([6..8, 0..4].into_iter().collect());
        work.processed(&line, &span(0, 0, 1));
        work.processed(&line, &span(0, 6, 7));
        assert_eq!(work.left().ranges(), [7..8, 1..4]);
    }
}

//! What one worker still has to read.

use std::ops::Range;

use super::Line;

/// Ranges of the line, in the order in which they are read: what is left of opened row groups first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Share(Vec<Range<u64>>);

impl Share {
    /// Nothing to read.
    pub const EMPTY: Share = Share(Vec::new());

    /// The ranges, none of them empty.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range at the end; one that goes on where the last one ends becomes part of it.
    pub fn push(&mut self, range: Range<u64>) {
        match self.0.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.0.push(range),
        }
    }

    /// The stretches of all ranges, in order.
    pub fn stretches(self, line: &Line) -> impl Iterator<Item = super::Stretch> + '_ {
        self.0.into_iter().flat_map(|range| line.stretches(range))
    }

    /// The share without its first `rows` rows.
    pub fn behind(&self, rows: u64) -> Share {
        self.clone().cut(rows, None)
    }

    /// Whether all its rows are rows of `whole`. Both must be disjoint in themselves.
    pub(super) fn is_part_of(&self, whole: &Share) -> bool {
        let sorted = |share: &Share| {
            let mut ranges = share.0.clone();
            ranges.sort_unstable_by_key(|range| range.start);
            // Neighbours may stand apart in the order of reading.
            ranges.into_iter().fold(Share::EMPTY, |mut joined, range| {
                joined.push(range);
                joined
            })
        };
        let whole = sorted(whole).0;
        let mut ranges = whole.iter();
        let mut current = ranges.next();
        sorted(self).0.iter().all(|range| {
            while current.is_some_and(|whole| whole.end <= range.start) {
                current = ranges.next();
            }
            current.is_some_and(|whole| whole.start <= range.start && range.end <= whole.end)
        })
    }

    /// Cuts the share behind its first `rows` rows, and returns what is behind. If row groups are to stay whole, behind
    /// the row group in which that is.
    pub(super) fn cut(&mut self, rows: u64, whole: Option<&Line>) -> Share {
        let mut left = rows;
        for (index, range) in self.0.iter_mut().enumerate() {
            let len = range.end - range.start;
            if left >= len {
                left -= len;
                continue;
            }
            let mut at = range.start + left;
            if let Some(line) = whole.filter(|_| left > 0) {
                at = line.border(at).min(range.end);
            }
            let mut behind = Share::EMPTY;
            behind.push(at..range.end);
            range.end = at;
            let kept = index + usize::from(!range.is_empty());
            behind.0.extend(self.0.drain(index + 1..));
            self.0.truncate(kept);
            return behind;
        }
        Share::EMPTY
    }

    /// Adds all of another share at the end.
    pub(super) fn append(&mut self, other: Share) {
        for range in other.0 {
            self.push(range);
        }
    }
}

impl FromIterator<Range<u64>> for Share {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut share = Share::EMPTY;
        for range in ranges {
            share.push(range);
        }
        share
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a share may be one range")]
mod tests {
    use super::*;

    fn share<const N: usize>(ranges: [Range<u64>; N]) -> Share {
        ranges.into_iter().collect()
    }

    #[test]
    fn neighbours_become_one_and_nothing_is_no_range() {
        assert_eq!(share([0..3, 3..3, 3..5, 7..8]).ranges(), [0..5, 7..8]);
        assert_eq!(share([0..5, 7..8]).rows(), 6);
    }

    #[test]
    fn a_cut_takes_nothing_away() {
        let whole = share([10..14, 2..5, 20..30]);
        for rows in 0..=20 {
            let mut front = whole.clone();
            let behind = front.cut(rows, None);
            assert_eq!(front.rows(), rows.min(17));
            front.append(behind);
            assert_eq!(front, whole);
        }
    }

    #[test]
    fn a_cut_between_row_groups_is_behind_the_one_that_it_falls_in() {
        let line = Line::new(&[10, 10, 10], None);
        let kept = |rows| {
            // The rest of an opened group, and two more.
            let mut front = share([4..10, 10..30]);
            front.cut(rows, Some(&line));
            front.rows()
        };
        assert_eq!(
            [0, 1, 5, 6, 7, 16, 17, 26].map(kept),
            [0, 6, 6, 6, 16, 16, 26, 26]
        );
    }

    #[test]
    fn a_part_is_seen_in_any_order() {
        let whole = share([10..14, 14..20, 2..5]);
        assert!(share([3..4, 11..19]).is_part_of(&whole));
        assert!(share([]).is_part_of(&whole));
        assert!(!share([1..3]).is_part_of(&whole));
        assert!(!share([4..6]).is_part_of(&whole));
        assert!(!share([30..31]).is_part_of(&whole));
    }
}

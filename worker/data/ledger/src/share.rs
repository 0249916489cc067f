//! The remaining work of one worker.

use std::ops::Range;

use super::EpochLayout;

/// Ranges of the epoch layout in reading order, the rest of opened row groups first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Share(Vec<Range<u64>>);

impl Share {
    /// No rows.
    pub const EMPTY: Share = Share(Vec::new());

    /// The ranges, none of which is empty.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a range, and merges it with the last one if they are adjacent.
    pub fn push(&mut self, range: Range<u64>) {
        match self.0.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.0.push(range),
        }
    }

    /// The segments of all ranges, in order.
    pub fn segments(self, layout: &EpochLayout) -> impl Iterator<Item = super::Segment> + '_ {
        self.0.into_iter().flat_map(|range| layout.segments(range))
    }

    /// The share without its first `rows` rows.
    pub fn without_first(&self, rows: u64) -> Share {
        self.clone().split_off(rows, None)
    }

    /// Whether all rows are rows of `whole`. Neither share may contain a row twice.
    pub(super) fn is_subset_of(&self, whole: &Share) -> bool {
        let sorted = |share: &Share| {
            let mut ranges = share.0.clone();
            ranges.sort_unstable_by_key(|range| range.start);
            // Adjacent ranges may be apart in reading order.
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

    /// Keeps the first `rows` rows and returns the rest. With a layout in `whole` no row group is split: the share
    /// keeps all of the row group at the split.
    pub(super) fn split_off(&mut self, rows: u64, whole: Option<&EpochLayout>) -> Share {
        let mut left = rows;
        for (index, range) in self.0.iter_mut().enumerate() {
            let len = range.end - range.start;
            if left >= len {
                left -= len;
                continue;
            }
            let mut split_at = range.start + left;
            if let Some(layout) = whole.filter(|_| left > 0) {
                split_at = layout.next_boundary(split_at).min(range.end);
            }
            let mut tail = Share::EMPTY;
            tail.push(split_at..range.end);
            range.end = split_at;
            let kept = index + usize::from(!range.is_empty());
            tail.0.extend(self.0.drain(index + 1..));
            self.0.truncate(kept);
            return tail;
        }
        Share::EMPTY
    }

    /// Appends another share.
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
            let tail = front.split_off(rows, None);
            assert_eq!(front.rows(), rows.min(17));
            front.append(tail);
            assert_eq!(front, whole);
        }
    }

    #[test]
    fn a_cut_between_row_groups_is_behind_the_one_that_it_falls_in() {
        let layout = EpochLayout::new(&[10, 10, 10], None);
        let kept = |rows| {
            // The rest of an opened group, and two more groups.
            let mut front = share([4..10, 10..30]);
            front.split_off(rows, Some(&layout));
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
        assert!(share([3..4, 11..19]).is_subset_of(&whole));
        assert!(share([]).is_subset_of(&whole));
        assert!(!share([1..3]).is_subset_of(&whole));
        assert!(!share([4..6]).is_subset_of(&whole));
        assert!(!share([30..31]).is_subset_of(&whole));
    }
}

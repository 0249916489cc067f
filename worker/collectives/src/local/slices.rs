//! Cuts a large message into slices.

use std::ops::Range;

use crate::region::SLICE;

/// Bytes of the first slice of a group.
const INITIAL_SLICE: usize = 128 << 10;
/// Bytes of the largest slice. With two buffers per member, it should stay in the caches.
const MAX_SLICE: usize = 1 << 20;

/// The slice size, which grows with the amount of data that a group has moved.
///
/// The first touch of a page of a fresh region costs ten times as much as copying it, so a group
/// that only moves a megabyte must not touch eight. A group that moves gigabytes needs large
/// slices, since each slice costs a barrier. All members share the history and therefore the size.
#[derive(Debug)]
pub(crate) struct Slices {
    size: usize,
}

impl Slices {
    pub(crate) fn new() -> Self {
        Self {
            size: INITIAL_SLICE,
        }
    }

    /// The next slice of `total` units of `unit` bytes, after the first `done` units.
    pub(crate) fn next(&mut self, done: usize, total: usize, unit: usize) -> Range<usize> {
        let units = (self.size.min(SLICE) / unit).max(1);
        if total - done > units {
            self.size = (self.size * 2).min(MAX_SLICE);
        }
        done..total.min(done + units)
    }
}

/// The part of `range` that member `index` of `count` works on. Parts begin at cache lines, so that
/// two members do not write the same line.
pub(crate) fn share(range: &Range<usize>, index: u32, count: u32, unit: usize) -> Range<usize> {
    let line = (64 / unit).max(1);
    let lines = range.len().div_ceil(line);
    let cut = |index: u32| {
        let offset = lines * index as usize / count as usize * line;
        range.start + offset.min(range.len())
    };
    cut(index)..cut(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_and_grow() {
        let mut slices = Slices::new();
        let total = 3_000_001;
        let (mut done, mut sizes) = (0, Vec::new());
        while done < total {
            let slice = slices.next(done, total, 4);
            assert_eq!(slice.start, done);
            done = slice.end;
            sizes.push(slice.len() * 4);
        }
        assert_eq!(done, total);
        assert_eq!(
            &sizes[..3],
            [INITIAL_SLICE, INITIAL_SLICE * 2, INITIAL_SLICE * 4]
        );
        assert!(sizes.iter().all(|&size| size <= MAX_SLICE));
    }

    #[test]
    fn shares_partition_a_slice() {
        for count in 1..10 {
            for len in [0, 1, 15, 16, 17, 1000, 4096] {
                let range = 100..100 + len;
                let mut pos = range.start;
                for index in 0..count {
                    let part = share(&range, index, count, 4);
                    assert_eq!(part.start, pos);
                    pos = part.end;
                }
                assert_eq!(pos, range.end);
            }
        }
    }
}

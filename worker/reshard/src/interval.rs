//! Cuts of one dimension of a tensor: lists of intervals in increasing order.
//!
//! A chunk of a length is what `torch.chunk` gives: all chunks have the size `ceil(len / count)`, but the last ones, which
//! are shorter or empty. Cuts of the same dimension follow each other: each one cuts what the former has left, as if it
//! were one piece.

use std::ops::Range;

/// Elements of one dimension: `offset` to `offset + len`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Interval {
    /// The first element.
    pub offset: u64,
    /// How many there are.
    pub len: u64,
}

impl Interval {
    /// Behind the last element.
    pub(crate) fn end(self) -> u64 {
        self.offset + self.len
    }
}

/// One cut of a dimension by one dimension of a mesh.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Cut {
    /// Number of parts: the size of the mesh in this dimension.
    pub(crate) parts: u32,
    /// Number of pieces that are each cut into `parts`. 1 for a plain chunk.
    pub(crate) factor: u32,
}

impl Cut {
    /// How many of `len` elements part `index` has.
    pub(crate) fn len(self, len: u64, index: u32) -> u64 {
        let piece = len.div_ceil(self.factor.into()).max(1);
        let in_chunk = |len| {
            let Range { start, end } = chunk(len, self.parts, index);
            end - start
        };
        len / piece * in_chunk(piece) + in_chunk(len % piece)
    }

    /// The elements of part `index` of `list`.
    pub(crate) fn apply(self, list: &[Interval], index: u32) -> Vec<Interval> {
        let len = total(list);
        let piece = len.div_ceil(self.factor.into()).max(1);
        let starts = (0..len.div_ceil(piece)).map(|nth| nth * piece);
        select(
            list,
            starts.map(|start| {
                let part = chunk(piece.min(len - start), self.parts, index);
                start + part.start..start + part.end
            }),
        )
    }
}

/// All elements of a dimension, as a list.
pub(crate) fn whole(len: u64) -> Vec<Interval> {
    if len == 0 {
        return Vec::new();
    }
    vec![Interval { offset: 0, len }]
}

/// Number of elements of a list.
pub(crate) fn total(list: &[Interval]) -> u64 {
    list.iter().map(|interval| interval.len).sum()
}

/// Chunk `index` of `count`, as `torch.chunk` cuts.
fn chunk(len: u64, count: u32, index: u32) -> Range<u64> {
    let size = len.div_ceil(count.into());
    let start = (size * u64::from(index)).min(len);
    start..(start + size).min(len)
}

/// The elements of `list` at the given indices, which increase.
fn select(list: &[Interval], ranges: impl Iterator<Item = Range<u64>>) -> Vec<Interval> {
    let mut selected: Vec<Interval> = Vec::new();
    let mut rest = list.iter();
    let mut current = rest.next();
    // Elements of the list before `current`.
    let mut before = 0;
    for mut range in ranges {
        while let Some(interval) = current.filter(|_| !range.is_empty()) {
            if range.start >= before + interval.len {
                before += interval.len;
                current = rest.next();
                continue;
            }
            let skipped = range.start - before;
            let len = (interval.len - skipped).min(range.end - range.start);
            range.start += len;
            let offset = interval.offset + skipped;
            match selected.last_mut() {
                Some(last) if last.end() == offset => last.len += len,
                _ => selected.push(Interval { offset, len }),
            }
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The elements of part `index`, one by one.
    fn by_element(elements: &[u64], cut: Cut, index: u32) -> Vec<u64> {
        let piece = elements.len().div_ceil(cut.factor as usize).max(1);
        let mut part = Vec::new();
        for piece in elements.chunks(piece) {
            let chunk = piece.len().div_ceil(cut.parts as usize).max(1);
            part.extend(piece.chunks(chunk).nth(index as usize).unwrap_or_default());
        }
        part
    }

    fn elements(list: &[Interval]) -> Vec<u64> {
        (list.iter())
            .flat_map(|interval| interval.offset..interval.end())
            .collect()
    }

    proptest! {
        #[test]
        fn cuts_are_those_of_chunks(
            len in 0_u64..40,
            cuts in prop::collection::vec((1_u32..6, 1_u32..6, 0_u32..6), 0..4),
        ) {
            let (mut list, mut expected) = (whole(len), (0..len).collect::<Vec<_>>());
            for (parts, factor, index) in cuts {
                let cut = Cut { parts, factor };
                let index = index % parts;
                prop_assert_eq!(cut.len(total(&list), index), by_element(&expected, cut, index).len() as u64);
                expected = by_element(&expected, cut, index);
                list = cut.apply(&list, index);
                prop_assert_eq!(elements(&list), &expected[..]);
                prop_assert!(list.windows(2).all(|pair| pair[0].end() < pair[1].offset), "{:?}", list);
            }
        }
    }

    #[test]
    fn the_last_chunks_are_empty() {
        let cut = Cut {
            parts: 4,
            factor: 1,
        };
        let offsets = |index| elements(&cut.apply(&whole(5), index));
        assert_eq!(
            [0, 1, 2, 3].map(offsets),
            [vec![0, 1], vec![2, 3], vec![4], vec![]]
        );
    }
}

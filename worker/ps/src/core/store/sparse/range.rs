//! A range of keys of a store as a whole: it is copied to another server, or forgotten.

use elasticrun_collectives::Element;

use super::{Run, SparseStore, lower_bound};
use crate::core::ranges::KeyRange;

impl<T: Element> SparseStore<T> {
    /// The first keys of a range, the length of each, and their values: at most so many values, but at least one key.
    pub(crate) fn first_of(
        &mut self,
        range: KeyRange,
        count: usize,
    ) -> (Vec<u64>, Vec<u32>, Vec<T>) {
        if !self.small.keys.is_empty() {
            let small = std::mem::take(&mut self.small);
            self.large = std::mem::take(&mut self.large).merged(small);
        }
        let run = &self.large;
        let (first, end) = indices(run, range);
        let mut next = first;
        let mut values = 0;
        while next < end && (next == first || values + run.len_at(next) <= count) {
            // A key without values counts too.
            values += run.len_at(next).max(1);
            next += 1;
        }
        let keys = run.keys[first..next].to_vec();
        let lens = (first..next).map(|index| run.len_at(index) as u32);
        (keys, lens.collect(), run.values(first, next).to_vec())
    }

    /// Forgets all keys of a range.
    pub(crate) fn remove_range(&mut self, range: KeyRange) {
        for run in [&mut self.large, &mut self.small] {
            let (first, end) = indices(run, range);
            run.remove(first, end);
        }
    }
}

fn indices<T: Element>(run: &Run<T>, range: KeyRange) -> (usize, usize) {
    let first = run.keys.partition_point(|&key| key < range.first);
    let end = match range.last.checked_add(1) {
        Some(limit) => lower_bound(&run.keys, first, limit),
        None => run.len(),
    };
    (first, end.max(first))
}

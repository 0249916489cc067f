//! Keys in ascending order, with their values beside each other.

use std::ops::Range;

use elasticrun_collectives::Element;

use super::{
    columns::{Columns, Part, StateShape},
    prefetch::prefetch,
};
use crate::core::keys::Lens;

/// Sorted keys, their values, and the state of these.
#[derive(Debug)]
pub(super) struct Run<T> {
    pub(super) keys: Vec<u64>,
    pub(super) columns: Columns<T>,
    layout: Layout,
}

/// Where the values of a key begin.
#[derive(Clone, Debug)]
enum Layout {
    /// All keys have so many values.
    Uniform(usize),
    /// The first value of each key, and behind the last one the number of values.
    Mixed(Vec<usize>),
}

impl<T> Default for Run<T> {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            columns: Columns::default(),
            layout: Layout::Uniform(0),
        }
    }
}

impl<T: Element> Run<T> {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    fn offset(&self, index: usize) -> usize {
        match &self.layout {
            Layout::Uniform(len) => len * index,
            Layout::Mixed(offsets) => offsets[index],
        }
    }

    pub(super) fn len_at(&self, index: usize) -> usize {
        self.offset(index + 1) - self.offset(index)
    }

    /// How many values all keys have, if equally many.
    pub(super) fn uniform(&self) -> Option<usize> {
        match self.layout {
            Layout::Uniform(len) => Some(len),
            Layout::Mixed(_) => None,
        }
    }

    /// Where the values of these keys are.
    pub(super) fn span(&self, keys: &Range<usize>) -> Range<usize> {
        self.offset(keys.start)..self.offset(keys.end)
    }

    /// The values of these keys.
    pub(super) fn values(&self, keys: Range<usize>) -> &[T] {
        &self.columns.values[self.span(&keys)]
    }

    /// Asks for the memory of a key and its values.
    #[inline]
    pub(super) fn prefetch(&self, index: usize) {
        prefetch(&self.keys, index);
        if let Layout::Uniform(len) = self.layout {
            prefetch(&self.columns.values, index * len);
        }
    }

    pub(super) fn part(&self, keys: Range<usize>) -> Part<'_, T> {
        self.columns.part(self.span(&keys), keys)
    }

    /// Creates the state that is missing.
    pub(super) fn conform(&mut self, shape: &StateShape<T>) {
        self.columns.conform(shape, self.keys.len());
    }

    /// Adds keys in ascending order that are greater than all others. Their values must follow.
    pub(super) fn append_keys(&mut self, keys: &[u64], lens: Lens<'_>) {
        if self.keys.is_empty()
            && let Lens::Uniform(len) = lens
        {
            self.layout = Layout::Uniform(len);
        }
        match (&mut self.layout, lens) {
            (Layout::Uniform(old), Lens::Uniform(new)) if *old == new => {}
            (layout, lens) => {
                if let Layout::Uniform(len) = layout {
                    let offsets = (0..=self.keys.len()).map(|index| index * *len);
                    *layout = Layout::Mixed(offsets.collect());
                }
                if let Layout::Mixed(offsets) = layout {
                    let mut end = offsets.last().copied().unwrap_or(0);
                    for position in 0..keys.len() {
                        end += lens.len_at(position);
                        offsets.push(end);
                    }
                }
            }
        }
        self.keys.extend_from_slice(keys);
    }

    /// Adds keys of another run that are greater than all of this one. Both have the same state.
    pub(super) fn append(&mut self, other: &Self, keys: Range<usize>) {
        match other.layout {
            Layout::Uniform(len) => {
                self.append_keys(&other.keys[keys.clone()], Lens::Uniform(len));
            }
            Layout::Mixed(_) => {
                for index in keys.clone() {
                    let len = Lens::Uniform(other.len_at(index));
                    self.append_keys(&other.keys[index..=index], len);
                }
            }
        }
        self.columns.append(other.part(keys));
    }

    /// All keys of both. They have no key in common, and the same state.
    pub(super) fn merged(mut self, other: Self, shape: &StateShape<T>) -> Self {
        if other.keys.is_empty() {
            return self;
        }
        if self.keys.last() < other.keys.first() {
            self.append(&other, 0..other.len());
            return self;
        }
        let mut merged = Self::default();
        merged.keys.reserve(self.len() + other.len());
        let values = self.columns.values.len() + other.columns.values.len();
        let keys = self.len() + other.len();
        merged.columns.reserve(values, keys, shape);
        let (mut a, mut b) = (0, 0);
        while let Some((of_self, keys)) = next_of(&self.keys, &mut a, &other.keys, &mut b) {
            merged.append(if of_self { &self } else { &other }, keys);
        }
        merged
    }

    /// Takes keys out.
    pub(super) fn remove(&mut self, keys: Range<usize>) {
        let values = self.span(&keys);
        if let Layout::Mixed(offsets) = &mut self.layout {
            offsets.drain(keys.clone());
            for offset in &mut offsets[keys.start..] {
                *offset -= values.len();
            }
        }
        self.columns.remove(values, keys.clone());
        self.keys.drain(keys);
    }
}

/// The next maximal part in the order of the keys of two lists without a common key: whether it is of the first one, and its
/// indices. Moves the index of that list behind it.
pub(super) fn next_of(
    first: &[u64],
    a: &mut usize,
    second: &[u64],
    b: &mut usize,
) -> Option<(bool, Range<usize>)> {
    let of_first = match (first.get(*a), second.get(*b)) {
        (None, None) => return None,
        (Some(x), Some(y)) => x < y,
        (x, _) => x.is_some(),
    };
    let (keys, index, limit) = match of_first {
        true => (first, a, second.get(*b)),
        false => (second, b, first.get(*a)),
    };
    let end = match limit {
        Some(&limit) => lower_bound(keys, *index, limit),
        None => keys.len(),
    };
    Some((of_first, std::mem::replace(index, end)..end))
}

/// The first index from `from` on whose key is not less than `key`. Gallops, as it is usually near.
#[inline]
pub(super) fn lower_bound(keys: &[u64], from: usize, key: u64) -> usize {
    let mut low = from;
    let mut step = 1;
    while low + step <= keys.len() && keys[low + step - 1] < key {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(keys.len());
    low + keys[low..high].partition_point(|&found| found < key)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn galloping_finds_the_lower_bound(
            keys in btree_set(0u64..200, 0..60),
            from in 0usize..60,
            key in 0u64..210,
        ) {
            let keys: Vec<_> = keys.into_iter().collect();
            let from = from.min(keys.len());
            let expected = from + keys[from..].iter().take_while(|&&found| found < key).count();
            prop_assert_eq!(lower_bound(&keys, from, key), expected);
        }
    }
}

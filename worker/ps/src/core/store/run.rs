//! Keys in ascending order, with their values beside each other.

use elasticrun_collectives::Element;

use crate::core::keys::Lens;

/// Sorted keys and their values.
#[derive(Debug)]
pub(super) struct Run<T> {
    pub(super) keys: Vec<u64>,
    values: Vec<T>,
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
            values: Vec::new(),
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

    /// The values of the keys from `first` to before `end`.
    pub(super) fn values(&self, first: usize, end: usize) -> &[T] {
        &self.values[self.offset(first)..self.offset(end)]
    }

    pub(super) fn values_mut(&mut self, first: usize, end: usize) -> &mut [T] {
        let range = self.offset(first)..self.offset(end);
        &mut self.values[range]
    }

    /// Removes the keys from `first` to before `end`.
    pub(super) fn remove(&mut self, first: usize, end: usize) {
        let (from, to) = (self.offset(first), self.offset(end));
        if let Layout::Mixed(offsets) = &mut self.layout {
            offsets.drain(first..end);
            offsets[first..]
                .iter_mut()
                .for_each(|offset| *offset -= to - from);
        }
        self.keys.drain(first..end);
        self.values.drain(from..to);
    }

    /// Adds a key that is greater than all others.
    fn append(&mut self, key: u64, values: &[T]) {
        self.append_all(&[key], Lens::Uniform(values.len()), values);
    }

    /// Adds keys in ascending order that are greater than all others.
    pub(super) fn append_all(&mut self, keys: &[u64], lens: Lens<'_>, values: &[T]) {
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
                    let mut end = self.values.len();
                    for position in 0..keys.len() {
                        end += lens.len_at(position);
                        offsets.push(end);
                    }
                }
            }
        }
        self.keys.extend_from_slice(keys);
        self.values.extend_from_slice(values);
    }

    /// All keys of both. They have no key in common.
    pub(super) fn merged(mut self, other: Self) -> Self {
        if other.keys.is_empty() {
            return self;
        }
        if self.keys.last() < other.keys.first() {
            match &other.layout {
                Layout::Uniform(len) => {
                    self.append_all(&other.keys, Lens::Uniform(*len), &other.values);
                }
                Layout::Mixed(_) => {
                    for (index, &key) in other.keys.iter().enumerate() {
                        self.append(key, other.values(index, index + 1));
                    }
                }
            }
            return self;
        }
        let mut merged = Self::default();
        merged.keys.reserve(self.len() + other.len());
        merged
            .values
            .reserve(self.values.len() + other.values.len());
        let (mut a, mut b) = (0, 0);
        while a < self.len() || b < other.len() {
            // The keys of one of both that are less than the next key of the other one.
            let (run, first, end) =
                if b == other.len() || (a < self.len() && self.keys[a] < other.keys[b]) {
                    let end = match other.keys.get(b) {
                        Some(&limit) => lower_bound(&self.keys, a, limit),
                        None => self.len(),
                    };
                    (&self, std::mem::replace(&mut a, end), end)
                } else {
                    let end = match self.keys.get(a) {
                        Some(&limit) => lower_bound(&other.keys, b, limit),
                        None => other.len(),
                    };
                    (&other, std::mem::replace(&mut b, end), end)
                };
            match run.layout {
                Layout::Uniform(len) => {
                    let lens = Lens::Uniform(len);
                    merged.append_all(&run.keys[first..end], lens, run.values(first, end));
                }
                Layout::Mixed(_) => {
                    for index in first..end {
                        merged.append(run.keys[index], run.values(index, index + 1));
                    }
                }
            }
        }
        merged
    }
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

//! A store that has the keys that were pushed.
//!
//! The keys of a request are sorted, and so are those of the store, in two runs: a large one, and a small one for new keys that
//! is merged into the large one when it has grown. A request is a merge: it reads memory in order, and it sums maximal
//! runs of neighbouring keys at once.

use elasticrun_collectives::Element;

use super::{
    Combine, Expected, Found, Lens, Store, StoreError,
    run::{Run, lower_bound},
};

/// Values of the keys that were pushed.
#[derive(Debug)]
pub struct SparseStore<T> {
    large: Run<T>,
    small: Run<T>,
}

impl<T> Default for SparseStore<T> {
    fn default() -> Self {
        Self {
            large: Run::default(),
            small: Run::default(),
        }
    }
}

/// The small run has fewer keys than this, or than a part of the large one.
const MIN_SMALL: usize = 1024;
const SMALL_PART: usize = 16;
const MAX_SMALL: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Large,
    Small,
    Nowhere,
}

/// Neighbouring keys of a request that are neighbours in the store too, or are all not there.
#[derive(Clone, Copy, Debug)]
struct Segment {
    place: Where,
    /// Index of the first key in the run.
    index: usize,
    /// Position of the first key in the request.
    position: usize,
    count: usize,
}

impl<T: Element> SparseStore<T> {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.large.len() + self.small.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn run(&self, place: Where) -> &Run<T> {
        match place {
            Where::Small => &self.small,
            _ => &self.large,
        }
    }

    /// Divides the keys of a request into segments, in order.
    fn segments(
        &self,
        keys: &[u64],
        mut each: impl FnMut(Segment) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (large, small) = (&self.large.keys, &self.small.keys);
        let (mut in_large, mut in_small) = (0, 0);
        let mut position = 0;
        while position < keys.len() {
            let key = keys[position];
            in_large = lower_bound(large, in_large, key);
            let (place, index, run): (_, _, &[u64]) = if large.get(in_large) == Some(&key) {
                (Where::Large, in_large, large)
            } else {
                in_small = lower_bound(small, in_small, key);
                match small.get(in_small) == Some(&key) {
                    true => (Where::Small, in_small, small),
                    false => (Where::Nowhere, 0, &[]),
                }
            };
            let count = match place {
                Where::Nowhere => {
                    // Up to the next key that is there.
                    let next = |keys: &[u64], index: usize| keys.get(index).copied();
                    let next = [next(large, in_large), next(small, in_small)];
                    match next.into_iter().flatten().min() {
                        Some(limit) => lower_bound(keys, position, limit) - position,
                        None => keys.len() - position,
                    }
                }
                _ => common_prefix(&keys[position..], &run[index..]),
            };
            each(Segment {
                place,
                index,
                position,
                count,
            })?;
            position += count;
            match place {
                Where::Large => in_large += count,
                Where::Small => in_small += count,
                Where::Nowhere => {}
            }
        }
        Ok(())
    }

    /// Compares the lengths of a segment with those of a request.
    fn check(
        &self,
        segment: Segment,
        keys: &[u64],
        expected: Expected<'_>,
    ) -> Result<(), StoreError> {
        let run = self.run(segment.place);
        if let (Expected::Known(Lens::Uniform(given)), Some(stored)) = (expected, run.uniform())
            && given == stored
        {
            return Ok(());
        }
        for step in 0..segment.count {
            let position = segment.position + step;
            let stored = run.len_at(segment.index + step);
            match expected.len_at(position) {
                Some(given) if given != stored => {
                    let key = keys[position];
                    return Err(StoreError::LenDiffers { key, stored, given });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn insert(&mut self, new: Run<T>) {
        let limit = (self.large.len() / SMALL_PART).clamp(MIN_SMALL, MAX_SMALL);
        let behind = self.small.keys.is_empty() && self.large.keys.last() < new.keys.first();
        let small = std::mem::take(&mut self.small).merged(new);
        if behind || small.len() >= limit {
            self.large = std::mem::take(&mut self.large).merged(small);
        } else {
            self.small = small;
        }
    }
}

impl<T: Element> Store<T> for SparseStore<T> {
    fn push(
        &mut self,
        keys: &[u64],
        lens: Lens<'_>,
        values: &[T],
        combine: impl Combine<T>,
    ) -> Result<(), StoreError> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        let expected = Expected::Known(lens);
        self.segments(keys, |segment| {
            if segment.place == Where::Nowhere {
                missing.push(segment);
                return Ok(());
            }
            self.check(segment, keys, expected)?;
            found.push(segment);
            Ok(())
        })?;
        let mut cursor = Cursor::default();
        for segment in found {
            let (first, end) = cursor.values(lens, segment);
            let run = match segment.place {
                Where::Small => &mut self.small,
                _ => &mut self.large,
            };
            let stored = run.values_mut(segment.index, segment.index + segment.count);
            combine(stored, &values[first..end]);
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut new = Run::default();
        let mut cursor = Cursor::default();
        for segment in missing {
            let (first, end) = cursor.values(lens, segment);
            let (position, count) = (segment.position, segment.count);
            let lens = match lens {
                Lens::Mixed(lens) => Lens::Mixed(&lens[position..position + count]),
                uniform => uniform,
            };
            new.append_all(&keys[position..position + count], lens, &values[first..end]);
        }
        // A new key begins with zeros. What is combined with them is what was pushed, unless the rule is another one.
        let pushed = new.values(0, new.len()).to_vec();
        let len = new.len();
        let stored = new.values_mut(0, len);
        stored.fill(T::zeroed());
        combine(stored, &pushed);
        self.insert(new);
        Ok(())
    }

    fn pull_into(
        &self,
        keys: &[u64],
        expected: Expected<'_>,
        memory: Vec<T>,
    ) -> Result<Found<T>, StoreError> {
        let mut values = memory;
        values.clear();
        if let Expected::Known(lens) = expected {
            values.reserve_exact(lens.total(0, keys.len()));
        }
        let mut lens: Option<Vec<u32>> = match (self.large.uniform(), self.small.uniform()) {
            _ if matches!(expected, Expected::Known(_)) => None,
            (Some(_), _) if self.small.keys.is_empty() => None,
            (Some(large), Some(small)) if large == small => None,
            _ => Some(Vec::with_capacity(keys.len())),
        };
        self.segments(keys, |segment| {
            let (position, count) = (segment.position, segment.count);
            if segment.place == Where::Nowhere {
                let Expected::Known(lens) = expected else {
                    let key = keys[position];
                    return Err(StoreError::UnknownKey { key });
                };
                let len = values.len() + lens.total(position, position + count);
                values.resize(len, T::zeroed());
                return Ok(());
            }
            self.check(segment, keys, expected)?;
            let run = self.run(segment.place);
            values.extend_from_slice(run.values(segment.index, segment.index + count));
            if let Some(lens) = &mut lens {
                lens.extend((0..count).map(|step| run.len_at(segment.index + step) as u32));
            }
            Ok(())
        })?;
        let lens = lens.filter(|lens| lens.windows(2).any(|pair| pair[0] != pair[1]));
        Ok(Found { values, lens })
    }
}

/// Where the values of ascending segments are in a request.
#[derive(Debug, Default)]
struct Cursor {
    position: usize,
    value: usize,
}

impl Cursor {
    fn values(&mut self, lens: Lens<'_>, segment: Segment) -> (usize, usize) {
        let first = self.value + lens.total(self.position, segment.position);
        let end = first + lens.total(segment.position, segment.position + segment.count);
        self.position = segment.position + segment.count;
        self.value = end;
        (first, end)
    }
}

/// How many elements of both are equal from the start. Compares blocks, as long common parts are usual.
fn common_prefix(a: &[u64], b: &[u64]) -> usize {
    const BLOCK: usize = 64;
    let max = a.len().min(b.len());
    let mut count = 0;
    while count + BLOCK <= max && a[count..count + BLOCK] == b[count..count + BLOCK] {
        count += BLOCK;
    }
    let rest = a[count..max].iter().zip(&b[count..max]);
    count + rest.take_while(|(a, b)| a == b).count()
}

mod range;
#[cfg(test)]
mod tests;

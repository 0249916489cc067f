//! A store that has all keys of a range from the start, each with equally many values.

use elasticrun_collectives::Element;

use super::{Combine, Expected, Found, Lens, Store, StoreError};
use crate::core::ranges::KeyRange;

/// Values of all keys of a range. A key is an index.
#[derive(Debug)]
pub struct DenseStore<T> {
    range: KeyRange,
    per_key: usize,
    values: Vec<T>,
}

impl<T: Element> DenseStore<T> {
    /// Zeros for all keys of a range. `None` if the memory for them cannot be addressed.
    pub fn zeros(range: KeyRange, per_key: usize) -> Option<Self> {
        let keys = usize::try_from(range.last.checked_sub(range.first)?).ok()?;
        let count = keys.checked_add(1)?.checked_mul(per_key)?;
        if count.checked_mul(size_of::<T>())? > isize::MAX as usize {
            return None;
        }
        Some(Self {
            range,
            per_key,
            values: vec![T::zeroed(); count],
        })
    }

    /// All values, key by key.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    fn check(
        &self,
        keys: &[u64],
        len_at: impl Fn(usize) -> Option<usize>,
    ) -> Result<(), StoreError> {
        // Keys are ascending: if one is outside, so is the first or the last one.
        for key in [keys.first(), keys.last()].into_iter().flatten() {
            if !self.range.contains(*key) {
                let range = self.range;
                return Err(StoreError::OutOfRange { key: *key, range });
            }
        }
        for (position, &key) in keys.iter().enumerate() {
            match len_at(position) {
                Some(given) if given != self.per_key => {
                    let stored = self.per_key;
                    return Err(StoreError::LenDiffers { key, stored, given });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Calls `each` with the values of each maximal run of neighbouring keys: the first position in the request and in the
    /// store, and the number of values.
    fn runs(&self, keys: &[u64], mut each: impl FnMut(usize, usize, usize)) {
        let mut position = 0;
        while position < keys.len() {
            let first = position;
            position += 1;
            while position < keys.len() && keys[position] == keys[position - 1] + 1 {
                position += 1;
            }
            let index = (keys[first] - self.range.first) as usize;
            let k = self.per_key;
            each(first * k, index * k, (position - first) * k);
        }
    }
}

impl<T: Element> Store<T> for DenseStore<T> {
    fn push(
        &mut self,
        keys: &[u64],
        lens: Lens<'_>,
        values: &[T],
        combine: impl Combine<T>,
    ) -> Result<(), StoreError> {
        match lens {
            Lens::Uniform(len) if len == self.per_key => self.check(keys, |_| None)?,
            lens => self.check(keys, |position| Some(lens.len_at(position)))?,
        }
        let mut stored = std::mem::take(&mut self.values);
        self.runs(keys, |from, to, count| {
            combine(&mut stored[to..to + count], &values[from..from + count]);
        });
        self.values = stored;
        Ok(())
    }

    fn pull_into(
        &self,
        keys: &[u64],
        expected: Expected<'_>,
        memory: Vec<T>,
    ) -> Result<Found<T>, StoreError> {
        match expected {
            Expected::Known(Lens::Uniform(len)) if len == self.per_key => {
                self.check(keys, |_| None)?
            }
            expected => self.check(keys, |position| expected.len_at(position))?,
        }
        let mut values = memory;
        values.clear();
        values.reserve_exact(keys.len() * self.per_key);
        self.runs(keys, |_, at, count| {
            values.extend_from_slice(&self.values[at..at + count]);
        });
        Ok(Found { values, lens: None })
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_collectives::add;

    use super::*;

    #[test]
    fn sums_and_names_what_is_outside() {
        let range = KeyRange {
            first: 10,
            last: 14,
        };
        let mut store = DenseStore::<f32>::zeros(range, 2).unwrap();
        let uniform = Lens::Uniform(2);
        store
            .push(&[10, 11, 14], uniform, &[1., 2., 3., 4., 5., 6.], add)
            .unwrap();
        store
            .push(&[11], Lens::Mixed(&[2]), &[1., 1.], add)
            .unwrap();
        let found = store.pull(&[11, 12, 14], Expected::Unknown).unwrap();
        assert_eq!(found.values, [4., 5., 0., 0., 5., 6.]);
        assert_eq!(
            store.push(&[9, 10], uniform, &[0.; 4], add),
            Err(StoreError::OutOfRange { key: 9, range })
        );
        assert_eq!(
            store.pull(&[15], Expected::Unknown),
            Err(StoreError::OutOfRange { key: 15, range })
        );
        assert_eq!(
            store.push(&[10], Lens::Uniform(1), &[0.], add),
            Err(StoreError::LenDiffers {
                key: 10,
                stored: 2,
                given: 1
            })
        );
        assert_eq!(store.values().len(), 10);
    }

    #[test]
    fn the_whole_key_space_is_no_dense_store() {
        let all = KeyRange {
            first: 0,
            last: u64::MAX,
        };
        assert!(DenseStore::<f32>::zeros(all, 1).is_none());
        let range = KeyRange {
            first: u64::MAX,
            last: u64::MAX,
        };
        let mut store = DenseStore::<i64>::zeros(range, 1).unwrap();
        store
            .push(&[u64::MAX], Lens::Uniform(1), &[7], add)
            .unwrap();
        assert_eq!(store.values(), [7]);
    }
}

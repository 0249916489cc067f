//! A store that has all keys of a range from the start, each with equally many values.

use elasticrun_collectives::Element;

use super::{
    Chunk, Combine, Expected, Found, Init, Lens, Store, StoreError,
    columns::{Columns, StateShape},
    run::Run,
};
use crate::core::ranges::KeyRange;

/// Values of all keys of a range. A key is an index.
#[derive(Debug)]
pub struct DenseStore<T> {
    range: KeyRange,
    per_key: usize,
    columns: Columns<T>,
    shape: StateShape<T>,
    init: Init<T>,
}

impl<T: Element> DenseStore<T> {
    /// Zeros for all keys of a range. `None` if the memory for them cannot be addressed.
    pub fn zeros(range: KeyRange, per_key: usize) -> Option<Self> {
        Self::new(range, per_key, Init::zeros())
    }

    /// New values for all keys of a range. `None` if the memory for them cannot be addressed.
    pub fn new(range: KeyRange, per_key: usize, init: Init<T>) -> Option<Self> {
        let keys = usize::try_from(range.last.checked_sub(range.first)?).ok()?;
        let count = keys.checked_add(1)?.checked_mul(per_key)?;
        if count.checked_mul(size_of::<T>())? > isize::MAX as usize {
            return None;
        }
        let mut store = Self {
            range,
            per_key,
            columns: Columns::of_values(vec![T::zeroed(); count]),
            shape: StateShape::default(),
            init,
        };
        if !store.init.is_zeros() {
            store.reset(range);
        }
        Some(store)
    }

    /// All values, key by key.
    pub fn values(&self) -> &[T] {
        &self.columns.values
    }

    /// The keys.
    pub fn range(&self) -> KeyRange {
        self.range
    }

    fn keys(&self) -> usize {
        (self.range.last - self.range.first) as usize + 1
    }

    fn index(&self, key: u64) -> usize {
        (key - self.range.first) as usize
    }

    /// The part of a range that is here.
    fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        let first = range.first.max(self.range.first);
        let last = range.last.min(self.range.last);
        (first <= last).then_some(KeyRange { first, last })
    }

    /// Gives keys that are here their first values and state.
    fn reset(&mut self, range: KeyRange) {
        const KEYS: u64 = 1 << 12;
        let mut first = range.first;
        loop {
            let last = range.last.min(first.saturating_add(KEYS - 1));
            let keys: Vec<u64> = (first..=last).collect();
            let lens = Lens::Uniform(self.per_key);
            let mut new = Run::default();
            new.append_keys(&keys, lens);
            self.init.append(&keys, lens, &mut new.columns.values);
            new.conform(&self.shape);
            let index = self.index(first);
            let part = new.part(0..keys.len());
            self.columns.replace(index * self.per_key, index, part);
            if last == range.last {
                return;
            }
            first = last + 1;
        }
    }

    fn conform(&mut self, shape: StateShape<T>) {
        self.shape.extend(shape);
        self.columns.conform(&self.shape, self.keys());
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

    /// Calls `each` with each maximal run of neighbouring keys: the first position in the request, the first index in the
    /// store, and the number of keys.
    fn runs(&self, keys: &[u64], mut each: impl FnMut(usize, usize, usize)) {
        let mut position = 0;
        while position < keys.len() {
            let first = position;
            position += 1;
            while position < keys.len() && keys[position] == keys[position - 1] + 1 {
                position += 1;
            }
            each(first, self.index(keys[first]), position - first);
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
        self.conform(combine.state());
        let per_key = self.per_key;
        let mut columns = std::mem::take(&mut self.columns);
        self.runs(keys, |from, to, count| {
            let stored = to * per_key..(to + count) * per_key;
            let pushed = &values[from * per_key..(from + count) * per_key];
            let lens = Lens::Uniform(per_key);
            combine.combine(columns.cells(stored, to..to + count, lens, pushed));
        });
        self.columns = columns;
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
            let stored = at * self.per_key..(at + count) * self.per_key;
            values.extend_from_slice(&self.columns.values[stored]);
        });
        Ok(Found { values, lens: None })
    }

    fn export(&self, range: KeyRange, max_bytes: usize) -> Chunk<T> {
        let mut run = Run::default();
        let Some(range) = self.clip(range) else {
            return Chunk { run, next: None };
        };
        let most = (max_bytes / self.shape.key_bytes(self.per_key)).max(1);
        let first = self.index(range.first);
        let count = most.min(self.index(range.last) - first + 1);
        let next = range.first + (count as u64 - 1);
        let keys: Vec<u64> = (range.first..=next).collect();
        run.append_keys(&keys, Lens::Uniform(self.per_key));
        let values = first * self.per_key..(first + count) * self.per_key;
        run.columns
            .append(self.columns.part(values, first..first + count));
        Chunk {
            run,
            next: (next < range.last).then(|| next + 1),
        }
    }

    fn import(&mut self, chunk: Chunk<T>) -> Result<(), StoreError> {
        let mut run = chunk.run;
        self.check(&run.keys, |position| Some(run.len_at(position)))?;
        self.conform(super::chunk::shape(&run));
        run.conform(&self.shape);
        let mut columns = std::mem::take(&mut self.columns);
        self.runs(&run.keys, |from, to, count| {
            columns.replace(to * self.per_key, to, run.part(from..from + count));
        });
        self.columns = columns;
        Ok(())
    }

    /// The keys begin anew: a dense store has all keys of its range.
    fn remove(&mut self, range: KeyRange) {
        if let Some(range) = self.clip(range) {
            self.reset(range);
        }
    }
}

#[cfg(test)]
mod tests;

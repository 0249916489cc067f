//! A store that has the keys that were pushed.
//!
//! The keys of a request are sorted, and so are those of the store, in two runs: a large one, and a small one for new keys that
//! is merged into the large one when it has grown. A request is a merge: it reads memory in order, and it sums maximal
//! runs of neighbouring keys at once.

mod batch;
mod segments;

use batch::Batch;
use elasticrun_collectives::Element;
use segments::{Cursor, Segment, Where};

use super::{
    Chunk, Combine, Expected, Found, Init, Lens, Store, StoreError,
    columns::StateShape,
    run::{Run, next_of},
};
use crate::core::ranges::KeyRange;

/// Values of the keys that were pushed.
#[derive(Debug)]
pub struct SparseStore<T> {
    large: Run<T>,
    small: Run<T>,
    /// Both runs have this state.
    shape: StateShape<T>,
    init: Init<T>,
    /// Memory for the keys of a request that are here.
    found: Vec<Segment>,
}

impl<T: Element> Default for SparseStore<T> {
    fn default() -> Self {
        Self::new(Init::zeros())
    }
}

/// The small run has fewer keys than this, or than a part of the large one.
const MIN_SMALL: usize = 1024;
const SMALL_PART: usize = 16;
const MAX_SMALL: usize = 1 << 16;

impl<T: Element> SparseStore<T> {
    /// A store whose new keys begin with these values.
    pub fn new(init: Init<T>) -> Self {
        Self {
            large: Run::default(),
            small: Run::default(),
            shape: StateShape::default(),
            init,
            found: Vec::new(),
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.large.len() + self.small.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn run_mut(&mut self, place: Where) -> &mut Run<T> {
        match place {
            Where::Small => &mut self.small,
            _ => &mut self.large,
        }
    }

    /// Creates the state that is missing.
    fn conform(&mut self, shape: StateShape<T>) {
        self.shape.extend(shape);
        self.large.conform(&self.shape);
        self.small.conform(&self.shape);
    }

    fn insert(&mut self, new: Run<T>) {
        let limit = (self.large.len() / SMALL_PART).clamp(MIN_SMALL, MAX_SMALL);
        let behind = self.small.keys.is_empty() && self.large.keys.last() < new.keys.first();
        let small = std::mem::take(&mut self.small).merged(new, &self.shape);
        if behind || small.len() >= limit {
            self.large = std::mem::take(&mut self.large).merged(small, &self.shape);
        } else {
            self.small = small;
        }
    }

    /// Adds new keys of a request, and combines their first values with what is pushed.
    fn push_new(
        &mut self,
        missing: &[Segment],
        keys: &[u64],
        lens: Lens<'_>,
        values: &[T],
        combine: &impl Combine<T>,
    ) {
        let mut new = Run::default();
        let mut pushed = Vec::new();
        let mut new_lens = Vec::new();
        let mut cursor = Cursor::default();
        for &segment in missing {
            let (first, end) = cursor.values(lens, segment);
            let positions = segment.position..segment.position + segment.count;
            let keys = &keys[positions.clone()];
            let lens = lens.slice(positions);
            new.append_keys(keys, lens);
            self.init.append(keys, lens, &mut new.columns.values);
            if let Lens::Mixed(lens) = lens {
                new_lens.extend_from_slice(lens);
            }
            pushed.extend_from_slice(&values[first..end]);
        }
        new.conform(&self.shape);
        let keys = 0..new.len();
        let lens = match lens {
            Lens::Mixed(_) => Lens::Mixed(&new_lens),
            uniform => uniform,
        };
        let values = new.span(&keys);
        combine.combine(new.columns.cells(values, keys, lens, &pushed));
        self.insert(new);
    }

    /// Indices of the keys of a range.
    fn bounds(run: &Run<T>, range: KeyRange) -> (usize, usize) {
        let first = run.keys.partition_point(|&key| key < range.first);
        let end = run.keys.partition_point(|&key| key <= range.last);
        (first, end.max(first))
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
        let mut found = std::mem::take(&mut self.found);
        let missing = self.divide(keys, lens, &mut found)?;
        self.conform(combine.state());
        let mut cursor = Cursor::default();
        let mut batch = Batch::default();
        for &segment in &found {
            let (first, end) = cursor.values(lens, segment);
            let short = Batch::<T>::is_short(&(first..end));
            if !short || !batch.takes(segment) {
                batch.flush(self, lens, values, &combine);
            }
            if short {
                batch.gather(self, segment, first..end);
                continue;
            }
            let lens = lens.slice(segment.position..segment.position + segment.count);
            let run = self.run_mut(segment.place);
            let keys = segment.index..segment.index + segment.count;
            let stored = run.span(&keys);
            combine.combine(run.columns.cells(stored, keys, lens, &values[first..end]));
        }
        batch.flush(self, lens, values, &combine);
        self.found = found;
        if !missing.is_empty() {
            self.push_new(&missing, keys, lens, values, &combine);
        }
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
                let lens = lens.slice(position..position + count);
                self.init
                    .append(&keys[position..position + count], lens, &mut values);
                return Ok(());
            }
            self.check(segment, keys, expected)?;
            let run = self.run(segment.place);
            values.extend_from_slice(run.values(segment.index..segment.index + count));
            if let Some(lens) = &mut lens {
                lens.extend((0..count).map(|step| run.len_at(segment.index + step) as u32));
            }
            Ok(())
        })?;
        let lens = lens.filter(|lens| lens.windows(2).any(|pair| pair[0] != pair[1]));
        Ok(Found { values, lens })
    }

    fn export(&self, range: KeyRange, max_bytes: usize) -> Chunk<T> {
        let (mut large, large_end) = Self::bounds(&self.large, range);
        let (mut small, small_end) = Self::bounds(&self.small, range);
        let (large_keys, small_keys) =
            (&self.large.keys[..large_end], &self.small.keys[..small_end]);
        let mut run = Run::default();
        let mut left = max_bytes;
        while let Some((of_large, keys)) = next_of(large_keys, &mut large, small_keys, &mut small) {
            let from = if of_large { &self.large } else { &self.small };
            let mut end = keys.start;
            while end < keys.end {
                let bytes = self.shape.key_bytes(from.len_at(end));
                if bytes > left && (end > keys.start || run.len() > 0) {
                    break;
                }
                left = left.saturating_sub(bytes);
                end += 1;
            }
            run.append(from, keys.start..end);
            if end < keys.end {
                let next = Some(from.keys[end]);
                return Chunk { run, next };
            }
        }
        Chunk { run, next: None }
    }

    fn import(&mut self, chunk: Chunk<T>) -> Result<(), StoreError> {
        let mut run = chunk.run;
        let lens: Vec<u32> = (0..run.len())
            .map(|index| run.len_at(index) as u32)
            .collect();
        let mut found = Vec::new();
        let missing = self.divide(&run.keys, Lens::Mixed(&lens), &mut found)?;
        self.conform(super::chunk::shape(&run));
        run.conform(&self.shape);
        for segment in found {
            let own = self.run_mut(segment.place);
            let values = own.span(&(segment.index..segment.index)).start;
            let part = run.part(segment.position..segment.position + segment.count);
            own.columns.replace(values, segment.index, part);
        }
        let new = match missing[..] {
            [] => return Ok(()),
            [all] if all.count == run.len() => run,
            _ => {
                let mut new = Run::default();
                for segment in missing {
                    new.append(&run, segment.position..segment.position + segment.count);
                }
                new
            }
        };
        self.insert(new);
        Ok(())
    }

    fn remove(&mut self, range: KeyRange) {
        for run in [&mut self.large, &mut self.small] {
            let (first, end) = Self::bounds(run, range);
            run.remove(first..end);
        }
    }
}

#[cfg(test)]
mod tests;

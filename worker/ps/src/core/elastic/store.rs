//! What an elastic server keeps of an app. It knows no type of values, so that one server may have apps of several.

use bytes::Bytes;
use elasticrun_collectives::{Element, add};

use crate::{
    array::Array,
    core::{
        keys::Lens,
        optimizer::{Float, Optimizer, OptimizerError, Running},
        ranges::KeyRange,
        store::{Chunk, ChunkError, Combine, Expected, Init, SparseStore, Store, StoreError},
    },
};

/// What a pull found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FoundBytes {
    pub(crate) values: Bytes,
    pub(crate) lens: Option<Vec<u32>>,
    /// How many values each key has, if equally many.
    pub(crate) per_key: u32,
}

/// Keys of a range with all that belongs to them, as they are copied to another server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exported {
    /// The bytes of a [`Chunk`]. Empty if there is no key.
    pub(crate) chunk: Bytes,
    /// The first key behind the chunk. `None` if it has the last ones of the range.
    pub(crate) next: Option<u64>,
}

/// Why a store does not take over what another one has exported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImportError {
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The values of an app, with what its rule keeps beside them. Equal pushes in equal order lead to equal bits.
pub(crate) trait ElasticStore: Send {
    /// The code of the type of values.
    fn dtype(&self) -> u8;

    /// Bytes of a value.
    fn size(&self) -> usize;

    /// How pushes change values, as a text. It is empty for sums.
    fn rule(&self) -> &str;

    /// Applies a push.
    fn push(&mut self, keys: &[u64], lens: Lens<'_>, values: &[u8]) -> Result<(), StoreError>;

    /// Reads values.
    fn pull(&self, keys: &[u64], expected: Expected<'_>) -> Result<FoundBytes, StoreError>;

    /// The first keys of a range with their whole state, in order: about so many bytes, at least one key.
    fn export(&self, range: KeyRange, bytes: usize) -> Exported;

    /// Takes over what another store has exported.
    fn import(&mut self, chunk: &[u8]) -> Result<(), ImportError>;

    /// Takes over the keys of these ranges, in ascending order, of what another store has exported.
    fn load(&mut self, chunk: &[u8], ranges: &[KeyRange]) -> Result<(), ImportError>;

    /// Forgets a range.
    fn remove(&mut self, range: KeyRange);
}

/// Values from bytes: a copy only if they are not aligned.
fn values_of<T: Element>(bytes: &[u8]) -> std::borrow::Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => values.into(),
        Err(_) => aligned(bytes).into(),
    }
}

/// A copy that is aligned.
pub(crate) fn aligned<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    let mut values = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
    values
}

/// A store, and how pushes change it.
struct Ruled<T, R> {
    store: SparseStore<T>,
    combine: R,
    rule: String,
}

/// Sums of what is pushed.
pub(crate) fn sums<T: Element>() -> Box<dyn ElasticStore> {
    Box::new(Ruled {
        store: SparseStore::<T>::default(),
        combine: add::<T>,
        rule: String::new(),
    })
}

/// Weights that are changed by an optimizer.
pub(crate) fn optimized<T: Float>(
    init: Init<T>,
    optimizer: Optimizer,
) -> Result<Box<dyn ElasticStore>, OptimizerError> {
    optimizer.check()?;
    Ok(Box::new(Ruled {
        store: SparseStore::new(init),
        combine: Running::new(optimizer),
        rule: serde_json::to_string(&optimizer).expect("an optimizer is plain data"),
    }))
}

impl<T: Element, R: Send> ElasticStore for Ruled<T, R>
where
    for<'a> &'a R: Combine<T>,
{
    fn dtype(&self) -> u8 {
        T::DTYPE as u8
    }

    fn size(&self) -> usize {
        size_of::<T>()
    }

    fn rule(&self) -> &str {
        &self.rule
    }

    fn push(&mut self, keys: &[u64], lens: Lens<'_>, values: &[u8]) -> Result<(), StoreError> {
        let values = values_of::<T>(values);
        self.store.push(keys, lens, &values, &self.combine)
    }

    fn pull(&self, keys: &[u64], expected: Expected<'_>) -> Result<FoundBytes, StoreError> {
        let found = self.store.pull(keys, expected)?;
        let per_key = found.values.len().checked_div(keys.len()).unwrap_or(0) as u32;
        Ok(FoundBytes {
            values: Array::from(found.values).bytes(),
            lens: found.lens,
            per_key,
        })
    }

    fn export(&self, range: KeyRange, bytes: usize) -> Exported {
        let chunk = self.store.export(range, bytes);
        Exported {
            chunk: match chunk.keys().is_empty() {
                true => Bytes::new(),
                false => chunk.encode().into(),
            },
            next: chunk.next,
        }
    }

    fn import(&mut self, chunk: &[u8]) -> Result<(), ImportError> {
        Ok(self.store.import(Chunk::decode(chunk)?)?)
    }

    fn load(&mut self, chunk: &[u8], ranges: &[KeyRange]) -> Result<(), ImportError> {
        match Chunk::decode(chunk)?.within(ranges) {
            Some(chunk) => Ok(self.store.import(chunk)?),
            None => Ok(()),
        }
    }

    fn remove(&mut self, range: KeyRange) {
        self.store.remove(range);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::{collection::vec, prelude::*};

    use super::*;

    const ALL: KeyRange = KeyRange {
        first: 0,
        last: u64::MAX,
    };

    #[test]
    fn negative_zero_is_copied_bit_by_bit() {
        let mut from = SparseStore::new(Init::function(|_, values| values.fill(-0.0f32)));
        from.push(&[7], Lens::Uniform(1), &[-0.0], add).unwrap();
        let chunk = from.export(ALL, 1).encode();
        let mut to = sums::<f32>();
        to.import(&chunk).unwrap();
        assert_eq!(to.export(ALL, 1).chunk, chunk);
        let found = to.pull(&[7], Expected::Unknown).unwrap();
        assert_eq!(found.values, bytemuck::cast_slice(&[-0.0f32]).to_vec());
    }

    #[test]
    fn a_chunk_of_other_values_is_refused() {
        let mut from = sums::<f32>();
        from.push(&[1], Lens::Uniform(1), &[0; 4]).unwrap();
        let mut to = sums::<i32>();
        let refused = to.import(&from.export(ALL, 1).chunk);
        let dtype = elasticrun_collectives::DType::F32 as u8;
        assert_eq!(refused, Err(ChunkError::OtherType(dtype).into()));
    }

    /// Copies a range in pieces.
    fn copy(from: &dyn ElasticStore, to: &mut dyn ElasticStore, range: KeyRange, bytes: usize) {
        let mut next = Some(range.first);
        while let Some(first) = next {
            let piece = from.export(KeyRange { first, ..range }, bytes);
            next = piece.next;
            if !piece.chunk.is_empty() {
                to.import(&piece.chunk).unwrap();
            }
        }
    }

    proptest! {
        /// Pieces of any size put together are the range, with keys of different lengths too, and nothing else is touched by a
        /// removal.
        #[test]
        fn a_range_is_copied_and_removed(
            pushes in vec(vec(0u64..3000, 1..40), 0..20),
            bounds: (u16, u16),
            bytes in 1usize..400,
            mixed: bool,
        ) {
            let len = |key: u64| if mixed { key as usize % 4 } else { 2 };
            let mut store = sums::<i64>();
            let mut expected = BTreeMap::new();
            for keys in pushes {
                let keys: Vec<u64> = BTreeSet::from_iter(keys).into_iter().collect();
                let lens: Vec<u32> = keys.iter().map(|&key| len(key) as u32).collect();
                let values: Vec<i64> = keys.iter().flat_map(|&key| vec![key as i64; len(key)]).collect();
                store.push(&keys, Lens::Mixed(&lens), bytemuck::cast_slice(&values)).unwrap();
                for key in keys {
                    *expected.entry(key).or_insert(0) += key as i64;
                }
            }
            let (a, b) = (u64::from(bounds.0) % 3000, u64::from(bounds.1) % 3000);
            let range = KeyRange { first: a.min(b), last: a.max(b) };
            let mut other = sums::<i64>();
            copy(&*store, &mut *other, range, bytes);
            store.remove(range);
            for (key, sum) in expected {
                let (here, there) = match range.contains(key) {
                    true => (&other, &store),
                    false => (&store, &other),
                };
                let found = here.pull(&[key], Expected::Unknown);
                if len(key) > 0 || found.is_ok() {
                    let expected = vec![sum; len(key)];
                    prop_assert_eq!(&found.unwrap().values[..], bytemuck::cast_slice::<i64, u8>(&expected));
                }
                prop_assert!(there.pull(&[key], Expected::Unknown).is_err());
            }
        }

        /// What is loaded of some ranges is what a copy of all of it has there.
        #[test]
        fn a_part_of_a_chunk_is_loaded(
            pushes in vec((0u64..90, -9i8..9), 1..60),
            bounds in vec(0u64..100, 0..6),
            bytes in 1usize..600,
            mixed: bool,
        ) {
            let new = || optimized::<f32>(Init::zeros(), Optimizer::adam(0.1)).unwrap();
            let mut from = new();
            for (key, value) in pushes {
                let len = if mixed { 1 + key as usize % 3 } else { 2 };
                let values = vec![f32::from(value); len];
                from.push(&[key], Lens::Uniform(len), bytemuck::cast_slice(&values)).unwrap();
            }
            let mut bounds = bounds;
            bounds.sort_unstable();
            bounds.dedup();
            let ranges: Vec<_> = (bounds.chunks_exact(2))
                .map(|pair| KeyRange { first: pair[0], last: pair[1] - 1 })
                .collect();
            let (mut loaded, mut copied) = (new(), new());
            let mut next = Some(0);
            while let Some(first) = next {
                let piece = from.export(KeyRange { first, ..ALL }, bytes);
                next = piece.next;
                loaded.load(&piece.chunk, &ranges).unwrap();
            }
            for range in ranges {
                copy(&*from, &mut *copied, range, bytes);
            }
            prop_assert_eq!(loaded.export(ALL, usize::MAX), copied.export(ALL, usize::MAX));
        }

        /// A range that moves between pushes has the weights and the state of one that never moved, bit by bit.
        #[test]
        fn a_moved_range_goes_on_as_an_unmoved_one(
            pushes in vec(vec((0u64..60, -9i8..9), 1..30), 1..20),
            bytes in 1usize..600,
            decay: bool,
        ) {
            let optimizer = match decay {
                true => Optimizer::adamw(0.1, 0.01),
                false => Optimizer::adam(0.1),
            };
            let new = || {
                let init = Init::uniform(-1.0, 1.0, 7);
                optimized::<f32>(init, optimizer).unwrap()
            };
            let (mut unmoved, mut here) = (new(), new());
            for push in pushes {
                let push: BTreeMap<u64, i8> = push.into_iter().collect();
                let keys: Vec<u64> = push.keys().copied().collect();
                let values: Vec<f32> = push.values().map(|&value| f32::from(value)).collect();
                for store in [&mut unmoved, &mut here] {
                    store.push(&keys, Lens::Uniform(1), bytemuck::cast_slice(&values)).unwrap();
                }
                let mut there = new();
                copy(&*here, &mut *there, ALL, bytes);
                here = there;
            }
            let all = unmoved.export(ALL, usize::MAX);
            prop_assert_eq!(all, here.export(ALL, usize::MAX));
        }
    }
}

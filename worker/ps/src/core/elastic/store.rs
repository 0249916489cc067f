//! What an elastic server keeps of an app. It knows no type of values, so that one server may have apps of several.

use bytes::Bytes;
use elasticrun_collectives::{Element, add};

use crate::{
    array::Array,
    core::{
        keys::Lens,
        ranges::KeyRange,
        store::{Expected, SparseStore, Store, StoreError},
    },
};

/// Keys of a range with their values, as they are copied to another server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Piece {
    pub(crate) keys: Vec<u64>,
    /// How many values each key has, if they differ.
    pub(crate) lens: Vec<u32>,
    pub(crate) per_key: u32,
    pub(crate) values: Bytes,
}

/// What a pull found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FoundBytes {
    pub(crate) values: Bytes,
    pub(crate) lens: Option<Vec<u32>>,
    /// How many values each key has, if equally many.
    pub(crate) per_key: u32,
}

/// The values of an app. Equal pushes in equal order lead to equal bits.
pub(crate) trait ElasticStore: Send {
    /// The code of the type of values.
    fn dtype(&self) -> u8;

    /// Bytes of a value.
    fn size(&self) -> usize;

    /// Applies a push.
    fn push(&mut self, keys: &[u64], lens: Lens<'_>, values: &[u8]) -> Result<(), StoreError>;

    /// Reads values.
    fn pull(&self, keys: &[u64], expected: Expected<'_>) -> Result<FoundBytes, StoreError>;

    /// The first keys of a range with their whole state, in order: about so many bytes, at least one key. Empty if none is left.
    fn export(&mut self, range: KeyRange, bytes: usize) -> Piece;

    /// Takes over what another store has exported.
    fn import(&mut self, keys: &[u64], lens: Lens<'_>, values: &[u8]) -> Result<(), StoreError>;

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

impl<T: Element> ElasticStore for SparseStore<T> {
    fn dtype(&self) -> u8 {
        T::DTYPE as u8
    }

    fn size(&self) -> usize {
        size_of::<T>()
    }

    fn push(&mut self, keys: &[u64], lens: Lens<'_>, values: &[u8]) -> Result<(), StoreError> {
        Store::push(self, keys, lens, &values_of::<T>(values), add)
    }

    fn pull(&self, keys: &[u64], expected: Expected<'_>) -> Result<FoundBytes, StoreError> {
        let found = Store::pull(self, keys, expected)?;
        let per_key = found.values.len().checked_div(keys.len()).unwrap_or(0) as u32;
        Ok(FoundBytes {
            values: Array::from(found.values).bytes(),
            lens: found.lens,
            per_key,
        })
    }

    fn export(&mut self, range: KeyRange, bytes: usize) -> Piece {
        let count = (bytes / size_of::<T>()).max(1);
        let (keys, lens, values) = self.first_of(range, count);
        let per_key = values.len().checked_div(keys.len()).unwrap_or(0) as u32;
        let mixed = lens.iter().any(|len| *len != per_key);
        Piece {
            lens: if mixed { lens } else { Vec::new() },
            per_key: if mixed { 0 } else { per_key },
            keys,
            values: Array::from(values).bytes(),
        }
    }

    fn import(&mut self, keys: &[u64], lens: Lens<'_>, values: &[u8]) -> Result<(), StoreError> {
        let set = |stored: &mut [T], given: &[T]| stored.copy_from_slice(given);
        Store::push(self, keys, lens, &values_of::<T>(values), set)
    }

    fn remove(&mut self, range: KeyRange) {
        self.remove_range(range);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn piece_lens(piece: &Piece) -> Lens<'_> {
        match piece.lens.is_empty() {
            true => Lens::Uniform(piece.per_key as usize),
            false => Lens::Mixed(&piece.lens),
        }
    }

    #[test]
    fn negative_zero_is_copied_bit_by_bit() {
        let mut from = SparseStore::<f32>::default();
        let negative = bytemuck::cast_slice(&[-0.0f32]).to_vec();
        ElasticStore::import(&mut from, &[7], Lens::Uniform(1), &negative).unwrap();
        let all = KeyRange {
            first: 0,
            last: u64::MAX,
        };
        assert_eq!(from.export(all, 1).values, negative);
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
            let mut store = SparseStore::<i64>::default();
            let mut expected = BTreeMap::new();
            for keys in pushes {
                let keys: Vec<u64> = std::collections::BTreeSet::from_iter(keys).into_iter().collect();
                let lens: Vec<u32> = keys.iter().map(|&key| len(key) as u32).collect();
                let values: Vec<i64> = keys.iter().flat_map(|&key| vec![key as i64; len(key)]).collect();
                ElasticStore::push(&mut store, &keys, Lens::Mixed(&lens), bytemuck::cast_slice(&values)).unwrap();
                for key in keys {
                    *expected.entry(key).or_insert(0) += key as i64;
                }
            }
            let (a, b) = (u64::from(bounds.0) % 3000, u64::from(bounds.1) % 3000);
            let range = KeyRange { first: a.min(b), last: a.max(b) };
            let mut copy = SparseStore::<i64>::default();
            let mut next = Some(range.first);
            while let Some(first) = next {
                let piece = store.export(KeyRange { first, ..range }, bytes);
                next = piece.keys.last().map(|key| key + 1);
                copy.import(&piece.keys, piece_lens(&piece), &piece.values).unwrap();
            }
            store.remove(range);
            for (key, sum) in expected {
                let (here, there) = match range.contains(key) {
                    true => (&copy, &store),
                    false => (&store, &copy),
                };
                let found = ElasticStore::pull(here, &[key], Expected::Unknown);
                if len(key) > 0 || found.is_ok() {
                    let expected = vec![sum; len(key)];
                    prop_assert_eq!(&found.unwrap().values[..], bytemuck::cast_slice::<i64, u8>(&expected));
                }
                prop_assert!(ElasticStore::pull(there, &[key], Expected::Unknown).is_err());
            }
        }
    }
}

//! Tests of the sparse store: against a map, and its errors.

use std::collections::BTreeMap;

use elasticrun_collectives::add;
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};

use super::*;

#[test]
fn mistakes_are_named_and_change_nothing() {
    let mut store = SparseStore::<f32>::default();
    store
        .push(&[0, u64::MAX], Lens::Mixed(&[1, 2]), &[1., 2., 3.], add)
        .unwrap();
    assert_eq!(
        store.push(&[0, u64::MAX], Lens::Uniform(1), &[5., 5.], add),
        Err(StoreError::LenDiffers {
            key: u64::MAX,
            stored: 2,
            given: 1
        })
    );
    assert_eq!(
        store.pull(&[0, 1], Expected::Unknown),
        Err(StoreError::UnknownKey { key: 1 })
    );
    assert_eq!(
        store.pull(&[0], Expected::Known(Lens::Uniform(2))),
        Err(StoreError::LenDiffers {
            key: 0,
            stored: 1,
            given: 2
        })
    );
    let found = store.pull(&[0, u64::MAX], Expected::Unknown).unwrap();
    assert_eq!(
        (found.values, found.lens),
        (vec![1., 2., 3.], Some(vec![1, 2]))
    );
    // Keys that were never pushed are zeros where their number is known.
    let found = store
        .pull(&[0, 7], Expected::Known(Lens::Mixed(&[1, 3])))
        .unwrap();
    assert_eq!(found.values, [1., 0., 0., 0.]);
}

#[test]
fn a_new_key_begins_with_zeros_for_any_rule() {
    let mut store = SparseStore::<i64>::default();
    let minus = |dst: &mut [i64], src: &[i64]| dst.iter_mut().zip(src).for_each(|(a, b)| *a -= b);
    store.push(&[3], Lens::Uniform(1), &[5], minus).unwrap();
    store.push(&[3], Lens::Uniform(1), &[1], minus).unwrap();
    assert_eq!(store.pull(&[3], Expected::Unknown).unwrap().values, [-6]);
}

#[test]
fn many_small_inserts_stay_sorted_and_complete() {
    let mut store = SparseStore::<i64>::default();
    // Every key once, in an order without neighbours.
    let count = 5_003u64;
    for step in 0..count {
        let key = step * 1_009 % count;
        store
            .push(&[key], Lens::Uniform(1), &[key as i64], add)
            .unwrap();
    }
    assert_eq!(store.len() as u64, count);
    let keys: Vec<_> = (0..count).collect();
    let found = store.pull(&keys, Expected::Unknown).unwrap();
    assert!(
        found
            .values
            .iter()
            .zip(0..)
            .all(|(&value, key)| value == key)
    );
}

proptest! {
    #[test]
    fn it_is_a_map_of_sums(pushes in vec(btree_map(0u64..300, 0i64..100, 1..80), 1..20), mixed: bool) {
        let mut store = SparseStore::<i64>::default();
        let mut model = BTreeMap::<u64, Vec<i64>>::new();
        for push in pushes {
            let keys: Vec<u64> = push.keys().copied().collect();
            // The length is a function of the key.
            let len = |key: u64| if mixed { (key % 4) as usize } else { 2 };
            let lens: Vec<u32> = keys.iter().map(|&key| len(key) as u32).collect();
            let mut values = Vec::new();
            for (&key, &value) in &push {
                let slot = model.entry(key).or_insert_with(|| vec![0; len(key)]);
                for (index, slot) in slot.iter_mut().enumerate() {
                    values.push(value + index as i64);
                    *slot += value + index as i64;
                }
            }
            let lens = if mixed { Lens::Mixed(&lens) } else { Lens::Uniform(2) };
            store.push(&keys, lens, &values, add).unwrap();
        }
        prop_assert_eq!(store.len(), model.len());
        let keys: Vec<u64> = model.keys().copied().collect();
        let found = store.pull(&keys, Expected::Unknown).unwrap();
        prop_assert_eq!(&found.values, &model.values().flatten().copied().collect::<Vec<_>>());
        if let Some(lens) = found.lens {
            prop_assert_eq!(lens, model.values().map(|values| values.len() as u32).collect::<Vec<_>>());
        } else {
            prop_assert!(model.values().all(|values| values.len() == model.values().next().unwrap().len()));
        }
    }
}

/// Parts of a large store with gaps of all sizes: long and short segments, batches that are full, new keys between.
#[test]
fn parts_of_many_keys_are_as_in_a_dense_store() {
    use crate::core::{
        optimizer::{Optimizer, Running},
        store::DenseStore,
    };

    const KEYS: u64 = 40_000;
    let range = KeyRange {
        first: 0,
        last: KEYS - 1,
    };
    let rule = Running::new(Optimizer::adam(0.1));
    let mut dense = DenseStore::<f32>::zeros(range, 1).unwrap();
    let mut sparse = SparseStore::<f32>::default();
    let mut state = 1u64;
    for max_gap in [2, 1, 3, 20, 300, 5, 8000, 1, 40] {
        let mut keys = Vec::new();
        let mut key = 0;
        while key < KEYS {
            keys.push(key);
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            key += 1 + (state >> 33) % max_gap;
        }
        let gradients: Vec<f32> = keys.iter().map(|key| (key % 17) as f32 - 8.0).collect();
        let lens = Lens::Uniform(1);
        dense.push(&keys, lens, &gradients, &rule).unwrap();
        sparse.push(&keys, lens, &gradients, &rule).unwrap();
        let expected = Expected::Known(lens);
        let found = sparse.pull(&keys, expected).unwrap();
        assert_eq!(found, dense.pull(&keys, expected).unwrap());
    }
    let all: Vec<u64> = (0..KEYS).collect();
    let found = sparse
        .pull(&all, Expected::Known(Lens::Uniform(1)))
        .unwrap();
    assert_eq!(found.values, dense.values());
}

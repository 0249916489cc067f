//! Tests of what moves keys from a store to another one: chunks hold all, stores go on as if nothing had been moved.

use std::collections::BTreeMap;

use elasticrun_collectives::add;
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};

use super::*;
use crate::core::optimizer::{Optimizer, Running};

const ALL: KeyRange = KeyRange {
    first: 0,
    last: u64::MAX,
};

/// Length as a function of the key.
fn len(key: u64, mixed: bool) -> usize {
    if mixed { (key % 4) as usize } else { 2 }
}

fn push<S: Store<f32>>(store: &mut S, push: &BTreeMap<u64, i8>, mixed: bool, rule: &Running) {
    let keys: Vec<u64> = push.keys().copied().collect();
    let lens: Vec<u32> = keys.iter().map(|&key| len(key, mixed) as u32).collect();
    let mut values = Vec::new();
    for (&key, &value) in push {
        values.extend((0..len(key, mixed)).map(|index| f32::from(value) + index as f32));
    }
    let lens = match mixed {
        true => Lens::Mixed(&lens),
        false => Lens::Uniform(2),
    };
    store.push(&keys, lens, &values, rule).unwrap();
}

/// Moves a range chunk by chunk, over bytes, and checks that the chunks are in order and not too large.
fn migrate<S: Store<f32>>(from: &mut S, to: &mut S, range: KeyRange, max_bytes: usize) {
    let mut first = range.first;
    let mut last_key = None;
    loop {
        let rest = KeyRange {
            first,
            last: range.last,
        };
        let chunk = from.export(rest, max_bytes);
        assert!(chunk.keys().iter().all(|key| rest.contains(*key)));
        assert!(chunk.keys().first().copied() > last_key || last_key.is_none());
        assert!(chunk.keys().is_sorted());
        last_key = chunk.keys().last().copied().or(last_key);
        let bytes = chunk.encode();
        assert!(bytes.len() <= max_bytes + 32 || chunk.keys().len() == 1);
        to.import(Chunk::decode(&bytes).unwrap()).unwrap();
        match chunk.next {
            Some(next) => first = next,
            None => break,
        }
    }
    from.remove(range);
}

fn all(store: &SparseStore<f32>) -> (Vec<u64>, Vec<u32>) {
    let chunk = store.export(ALL, usize::MAX);
    assert_eq!(chunk.next, None);
    let bits = chunk.values().iter().map(|value| value.to_bits());
    (chunk.keys().to_vec(), bits.collect())
}

fn rule() -> impl Strategy<Value = Optimizer> {
    prop_oneof![
        Just(Optimizer::sgd(0.1)),
        Just(Optimizer::momentum(0.1, 0.9)),
        Just(Optimizer::adagrad(0.1)),
        Just(Optimizer::adamw(0.1, 0.01)),
    ]
}

fn pushes() -> impl Strategy<Value = Vec<BTreeMap<u64, i8>>> {
    vec(btree_map(0u64..60, any::<i8>(), 1..30), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Two sparse stores between which ranges move are together one store.
    #[test]
    fn sparse_stores_go_on_as_one(
        pushes in pushes(),
        moves in vec((0u64..60, 0u64..60, 1usize..600, any::<bool>()), 8),
        optimizer in rule(),
        mixed: bool,
    ) {
        let rule = Running::new(optimizer);
        let store = || SparseStore::new(Init::uniform(-1.0, 1.0, 3));
        let (mut one, mut pair) = (store(), [store(), store()]);
        // Which of both has a key.
        let mut owner = [0usize; 60];
        for (update, (a, b, max_bytes, forth)) in pushes.iter().zip(moves) {
            push(&mut one, update, mixed, &rule);
            for (index, store) in pair.iter_mut().enumerate() {
                let part = update.iter().filter(|(key, _)| owner[**key as usize] == index);
                let part: BTreeMap<u64, i8> = part.map(|(&key, &value)| (key, value)).collect();
                if !part.is_empty() {
                    push(store, &part, mixed, &rule);
                }
            }
            let range = KeyRange { first: a.min(b), last: a.max(b) };
            let [first, second] = &mut pair;
            let (from, to) = if forth { (first, second) } else { (second, first) };
            // Only what the giver owns is there, so the taker keeps its own.
            migrate(from, to, range, max_bytes);
            owner[range.first as usize..=range.last as usize].fill(usize::from(forth));
            let mut together: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
            for store in &pair {
                let chunk = store.export(ALL, usize::MAX);
                for key in chunk.keys() {
                    let found = store.pull(&[*key], Expected::Unknown).unwrap().values;
                    let bits = found.iter().map(|value| value.to_bits()).collect();
                    prop_assert!(together.insert(*key, bits).is_none(), "key {} is in both", key);
                }
            }
            let values: Vec<u32> = together.values().flatten().copied().collect();
            let keys: Vec<u64> = together.into_keys().collect();
            prop_assert_eq!((keys, values), all(&one));
        }
    }

    /// A dense store takes over from a dense one.
    #[test]
    fn dense_stores_go_on_as_one(
        pushes in pushes(),
        cut in 0u64..60,
        max_bytes in 1usize..600,
        optimizer in rule(),
    ) {
        let rule = Running::new(optimizer);
        let range = KeyRange { first: 0, last: 59 };
        let store = || DenseStore::new(range, 2, Init::uniform(-1.0, 1.0, 3)).unwrap();
        let (mut one, mut old, mut new) = (store(), store(), store());
        let (before, after) = pushes.split_at(pushes.len() / 2);
        for update in before {
            push(&mut one, update, false, &rule);
            push(&mut old, update, false, &rule);
        }
        migrate(&mut old, &mut new, KeyRange { first: cut, last: u64::MAX }, max_bytes);
        if let Some(last) = cut.checked_sub(1) {
            migrate(&mut old, &mut new, KeyRange { first: 0, last }, max_bytes);
        }
        let fresh = store();
        prop_assert_eq!(old.values(), fresh.values());
        for update in after {
            push(&mut one, update, false, &rule);
            push(&mut new, update, false, &rule);
        }
        prop_assert_eq!(one.values(), new.values());
    }

    /// A sparse and a dense store give the same weights.
    #[test]
    fn sparse_and_dense_agree(pushes in pushes(), optimizer in rule()) {
        let rule = Running::new(optimizer);
        let range = KeyRange { first: 0, last: 59 };
        let mut dense = DenseStore::new(range, 2, Init::normal(0.0, 1.0, 5)).unwrap();
        let mut sparse = SparseStore::new(Init::normal(0.0, 1.0, 5));
        for update in &pushes {
            push(&mut dense, update, false, &rule);
            push(&mut sparse, update, false, &rule);
        }
        let keys: Vec<u64> = (0..60).collect();
        // Keys that were never pushed have their first values in both.
        let found = sparse.pull(&keys, Expected::Known(Lens::Uniform(2))).unwrap();
        prop_assert_eq!(dense.values(), found.values);
    }

    #[test]
    fn any_bytes_are_a_chunk_or_an_error(
        pushes in pushes(),
        mixed: bool,
        at in any::<prop::sample::Index>(),
        byte: u8,
        cut in any::<prop::sample::Index>(),
    ) {
        let rule = Running::new(Optimizer::adam(0.1));
        let mut store = SparseStore::default();
        for update in &pushes {
            push(&mut store, update, mixed, &rule);
        }
        let bytes = store.export(ALL, usize::MAX).encode();
        prop_assert_eq!(Chunk::<f32>::decode(&bytes).unwrap().encode(), bytes.clone());
        prop_assert!(matches!(Chunk::<i64>::decode(&bytes), Err(ChunkError::OtherType(_))));
        prop_assert!(Chunk::<f32>::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let mut damaged = bytes;
        let at = at.index(damaged.len());
        damaged[at] = byte;
        if let Ok(chunk) = Chunk::<f32>::decode(&damaged) {
            prop_assert_eq!(chunk.encode(), damaged);
        }
    }
}

#[test]
fn a_chunk_takes_the_place_of_what_is_there() {
    let mut store = SparseStore::<f32>::default();
    let uniform = Lens::Uniform(1);
    store.push(&[1, 5], uniform, &[1., 2.], add).unwrap();
    let chunk = store.export(ALL, 1);
    assert_eq!(
        (chunk.keys(), chunk.values(), chunk.next),
        (&[1][..], &[1.][..], Some(5))
    );
    store.push(&[1, 9], uniform, &[7., 7.], add).unwrap();
    store.import(chunk).unwrap();
    store.import(SparseStore::default().export(ALL, 1)).unwrap();
    let found = store.pull(&[1, 5, 9], Expected::Unknown).unwrap();
    assert_eq!(found.values, [1., 2., 7.]);
    let last = KeyRange {
        first: u64::MAX,
        last: u64::MAX,
    };
    store.push(&[u64::MAX], uniform, &[3.], add).unwrap();
    assert_eq!(store.export(last, 0).keys(), [u64::MAX]);
    store.remove(KeyRange { first: 2, last: 9 });
    assert_eq!(store.export(ALL, 1000).keys(), [1, u64::MAX]);
    // Another length, and a key outside of a dense store.
    let mut other = SparseStore::<f32>::default();
    other.push(&[1], Lens::Uniform(2), &[0., 0.], add).unwrap();
    let refused = store.import(other.export(ALL, 1000));
    assert!(matches!(
        refused,
        Err(StoreError::LenDiffers { key: 1, .. })
    ));
    let mut dense = DenseStore::<f32>::zeros(KeyRange { first: 0, last: 3 }, 1).unwrap();
    let refused = dense.import(store.export(last, 1000));
    assert!(matches!(refused, Err(StoreError::OutOfRange { .. })));
}

//! Tests of the dense store: sums and errors.

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

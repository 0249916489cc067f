use std::fs;

use tempfile::TempDir;

use super::*;

fn store() -> (TempDir, SnapshotStore) {
    let place = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(place.path().to_str().unwrap()).unwrap();
    store.take_over(JOB).unwrap();
    (place, store)
}

const JOB: &str = "a job";

const ALL: KeyRange = KeyRange {
    first: 0,
    last: u64::MAX,
};

fn apps() -> Vec<App> {
    vec![App {
        app: 3,
        dtype: 11,
        ..App::default()
    }]
}

/// Writes a snapshot of one range.
fn put(store: &SnapshotStore, number: u64) -> SavedRange {
    let mut file = RangeFile::default();
    file.push(3, &number.to_le_bytes());
    let saved = store.write_range(number, ALL, &file).unwrap();
    store
        .complete(JOB, number, &apps(), vec![saved.clone()])
        .unwrap();
    saved
}

#[test]
fn the_newest_complete_snapshot_is_found_and_read() {
    let (_place, store) = store();
    store.check().unwrap();
    assert_eq!(store.newest().unwrap(), (None, 1));
    put(&store, 1);
    let saved = put(&store, 2);
    // One that is not complete is not used, and its number is not used again.
    let file = RangeFile::default();
    store.write_range(3, ALL, &file).unwrap();
    let mut file = RangeFile::default();
    file.push(3, b"x");
    store.write_range(4, ALL, &file).unwrap();
    let (newest, next) = store.newest().unwrap();
    assert_eq!((newest.unwrap().number, next), (2, 5));
    let bytes = store.read_range(2, &saved).unwrap();
    assert_eq!(pieces(&bytes).unwrap(), [(3, &2u64.to_le_bytes()[..])]);
}

#[test]
fn a_snapshot_without_keys_is_complete() {
    let (_place, store) = store();
    let saved = store.write_range(1, ALL, &RangeFile::default()).unwrap();
    store.complete(JOB, 1, &apps(), vec![saved]).unwrap();
    let newest = store.newest().unwrap().0.unwrap();
    assert_eq!((newest.number, newest.ranges[0].bytes), (1, 0));
}

#[test]
fn two_complete_snapshots_are_kept() {
    let (place, store) = store();
    for number in 1..=4 {
        put(&store, number);
    }
    let kept = |number: u64| {
        place
            .path()
            .join(format!("parameter-server/{number}"))
            .exists()
    };
    assert_eq!([1, 2, 3, 4].map(kept), [false, false, true, true]);
}

#[test]
fn damaged_files_are_named() {
    let (place, store) = store();
    let saved = put(&store, 1);
    let directory = place.path().join("parameter-server/1");
    let path = directory.join(&saved.file);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = store.read_range(1, &saved).unwrap_err().to_string();
    assert!(
        error.contains(&saved.file) && error.contains("are not those"),
        "{error}"
    );
    fs::write(&path, &bytes[..last]).unwrap();
    let error = store.read_range(1, &saved).unwrap_err().to_string();
    assert!(error.contains("are not those"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = store.read_range(1, &saved).unwrap_err().to_string();
    assert!(error.ends_with("it is gone"), "{error}");
    fs::write(directory.join("manifest.json"), "{").unwrap();
    let error = store.newest().unwrap_err().to_string();
    assert!(
        error.contains("manifest.json") && error.contains("damaged"),
        "{error}"
    );
}

#[test]
fn a_snapshot_is_complete_only_if_all_of_it_is_seen() {
    let (place, store) = store();
    let saved = put(&store, 1);
    let elsewhere = SavedRange {
        file: "range-elsewhere".to_owned(),
        ..saved
    };
    let error = store
        .complete(JOB, 2, &apps(), vec![elsewhere])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("range-elsewhere") && error.contains("all hosts share"),
        "{error}"
    );
    assert!(!place.path().join("parameter-server/2").exists());
}

#[test]
fn the_job_that_has_started_last_owns_the_place() {
    let (place, store) = store();
    put(&store, 1);
    store.take_over("a later job").unwrap();
    let saved = store.write_range(2, ALL, &RangeFile::default()).unwrap();
    let complete = |job| store.complete(job, 2, &apps(), vec![saved.clone()]);
    let error = complete(JOB).unwrap_err().to_string();
    assert!(error.contains("another job has started later"), "{error}");
    store.clean(JOB, 2);
    assert!(place.path().join("parameter-server/1").exists());
    complete("a later job").unwrap();
    assert_eq!(store.newest().unwrap().0.unwrap().number, 2);
}

#[test]
fn what_is_left_of_a_snapshot_that_failed_is_removed() {
    let (place, store) = store();
    put(&store, 1);
    let mut file = RangeFile::default();
    file.push(3, b"x");
    for number in [2, 3] {
        store.write_range(number, ALL, &file).unwrap();
    }
    store.clean(JOB, 2);
    let is_there = |number: u64| {
        let name = format!("parameter-server/{number}");
        place.path().join(name).exists()
    };
    assert_eq!([1, 2, 3].map(is_there), [true, false, true]);
}

#[test]
fn names_that_are_no_numbers_are_ignored() {
    let (place, store) = store();
    for name in ["18446744073709551615", "007", "x"] {
        fs::create_dir(place.path().join("parameter-server").join(name)).unwrap();
    }
    assert_eq!(store.newest().unwrap(), (None, 1));
}

#[test]
fn a_place_that_does_not_exist_is_named() {
    let store = SnapshotStore::open("/nowhere/at/all").unwrap();
    let error = store.check().unwrap_err().to_string();
    assert!(
        error.contains("/nowhere/at/all") && error.contains("does not exist"),
        "{error}"
    );
}

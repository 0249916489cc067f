use std::{fs, path::Path};

use elasticrun_durable::Directory;
use elasticrun_protocol::{DriverEpoch, Round};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::durable::{layout::manifest_file, manifest::Manifest};

fn id(count: u64) -> CommitId {
    CommitId {
        epoch: DriverEpoch(1),
        round: Round(1),
        count,
    }
}

/// Writes a complete commit of 1.5 chunks.
fn put(place: &Path, run: &str, count: u64, written_at: u64) {
    let bytes = vec![count as u8; CHUNK + CHUNK / 2];
    let shard = StoredShard {
        index: 0,
        of: 1,
        bytes: bytes.len() as u64,
        xxh3: xxh3_64(&bytes),
        state_version: 0,
    };
    let name = shard_file(0, 1, shard.xxh3);
    let manifest = Manifest::new(run, id(count), 0, vec![shard], 2, written_at);
    let directory = place.join(commit_directory(run, id(count)));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(name), bytes).unwrap();
    fs::write(directory.join("manifest.json"), manifest.to_bytes()).unwrap();
}

fn found(
    place: &TempDir,
    run: &str,
    from: Option<ResumeFrom>,
) -> (Vec<(String, u64)>, Vec<String>) {
    let found = find(&Directory::new(place.path()), run, from.as_ref());
    let name = |stored: StoredCommit| (stored.run_id, stored.commit.count);
    (found.commits.into_iter().map(name).collect(), found.refused)
}

fn loaded(place: &TempDir, count: u64) -> Result<Vec<u8>, String> {
    let memory = CommitMemory::create().unwrap();
    let stored = StoredCommit {
        written_at: 1,
        run_id: "r".into(),
        commit: id(count),
    };
    let store = Directory::new(place.path());
    let result = load(&store, &stored, id(77), &memory);
    let reader = memory.reader().unwrap();
    match result {
        Ok(()) => Ok(reader.read(id(77)).unwrap().bytes().to_vec()),
        Err(error) => {
            assert_eq!(reader.newest().unwrap(), None, "no part of it is a commit");
            Err(error.to_string())
        }
    }
}

#[test]
fn a_commit_is_loaded_under_its_id_in_this_run() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "r", 5, 1);
    assert_eq!(loaded(&place, 5).unwrap(), vec![5; CHUNK + CHUNK / 2]);
}

#[test]
fn bytes_that_are_not_as_written_are_no_commit() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "r", 5, 1);
    let name = shard_file(0, 1, xxh3_64(&vec![5; CHUNK + CHUNK / 2]));
    let file = place.path().join("r/1.1.5").join(name);
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[CHUNK + 9] ^= 1;
    let longer = [whole.as_slice(), b"x"].concat();
    for damaged in [&whole[..CHUNK], &whole[..0], &flipped, &longer] {
        fs::write(&file, damaged).unwrap();
        let error = loaded(&place, 5).unwrap_err();
        assert!(error.contains("is damaged"), "{error}");
    }
    fs::remove_file(&file).unwrap();
    assert!(loaded(&place, 5).unwrap_err().contains("is gone"));
    fs::write(&file, whole).unwrap();
    assert!(loaded(&place, 5).is_ok());
}

#[test]
fn damaged_commits_are_named_and_older_ones_are_found() {
    let place = tempfile::tempdir().unwrap();
    for count in [1, 2, 3, 10] {
        put(place.path(), "r", count, count);
    }
    let manifest = place.path().join(manifest_file("r", id(10)));
    fs::write(&manifest, "{\"reader\": 9}").unwrap();
    // A commit without a manifest is not complete, and none is missed.
    fs::remove_file(place.path().join(manifest_file("r", id(3)))).unwrap();
    let (commits, refused) = found(&place, "r", None);
    assert_eq!(commits, [("r".into(), 2), ("r".into(), 1)]);
    let [refused] = refused.as_slice() else {
        panic!("{refused:?}");
    };
    assert!(
        refused.contains("1.1.10") && refused.contains("version 9"),
        "{refused}"
    );
}

#[test]
fn the_latest_run_is_that_of_the_newest_commit() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "own", 1, 40);
    put(place.path(), "old", 9, 10);
    // The later of two commits of a run may have been written first, and clocks of hosts differ.
    put(place.path(), "new", 3, 20);
    put(place.path(), "new", 2, 30);
    fs::write(place.path().join("notes.txt"), "of the user").unwrap();
    let run = |run: &str| Some(ResumeFrom::Run(run.into()));
    assert_eq!(found(&place, "own", None).0, [("own".into(), 1)]);
    let old = [("own".into(), 1), ("old".into(), 9)];
    assert_eq!(found(&place, "own", run("old")).0, old);
    let latest = found(&place, "own", Some(ResumeFrom::Latest));
    let newest = [("own".into(), 1), ("new".into(), 3), ("new".into(), 2)];
    assert_eq!(latest, (newest.to_vec(), vec![]));
}

#[test]
fn many_errors_are_counted() {
    let place = tempfile::tempdir().unwrap();
    for count in 1..=20 {
        put(place.path(), "r", count, count);
        fs::write(place.path().join(manifest_file("r", id(count))), "{").unwrap();
    }
    let (commits, refused) = found(&place, "r", None);
    assert_eq!((commits.len(), refused.len()), (0, MAX_REFUSED + 1));
    assert!(refused[MAX_REFUSED].starts_with("12 more"), "{refused:?}");
}

#[test]
fn a_store_that_is_not_there_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let store = Directory::new(place.path().join("not mounted"));
    let found = find(&store, "r", Some(&ResumeFrom::Latest));
    assert_eq!((found.commits.len(), found.refused.len()), (0, 1));
}

#[test]
fn an_empty_store_has_nothing() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(
        found(&place, "r", Some(ResumeFrom::Latest)),
        (vec![], vec![])
    );
}

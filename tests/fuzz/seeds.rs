//! The committed inputs of the fuzz targets, for tests that repeat them on any compiler. Tests include this file by its path.

use std::{fs, path::Path};

/// The inputs of a target with their names, sorted by name.
pub(crate) fn read(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|above| above.join("tests/fuzz/seeds").join(target))
        .find(|directory| directory.is_dir())
        .expect("each target has seeds in tests/fuzz/seeds");
    let mut seeds: Vec<_> = fs::read_dir(directory)
        .expect("the directory can be read")
        .map(|entry| entry.expect("the directory can be read"))
        .map(|entry| {
            let name = entry.file_name().into_string().expect("names are ASCII");
            (name, fs::read(entry.path()).expect("a seed can be read"))
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    seeds
}

//! Files of pyarrow, with pages that end within a row and dictionaries that end within a column. `fixtures/make.py`
//! writes them.

#![allow(clippy::unwrap_used)]

mod common;

use std::{path::PathBuf, sync::Arc};

use arrow_array::{
    Array, BinaryArray, FixedSizeListArray, Float32Array, Float64Array, ListArray, StringArray,
    cast::AsArray,
};
use common::{drain, ids, reader, text};
use elasticrun_data::{Batch, Dataset, ReaderOptions};

const WIDTH: usize = 5;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/pyarrow-{name}.parquet"))
}

fn column<'a, T: 'static>(batch: &'a Batch, name: &str) -> &'a T {
    batch
        .column(name)
        .unwrap()
        .array
        .as_any()
        .downcast_ref()
        .unwrap()
}

fn check(batch: &Batch) {
    let lists: &ListArray = column(batch, "list");
    let lists: &Float32Array = lists.values().as_primitive();
    let few: &ListArray = column(batch, "few");
    let few: &Float64Array = few.values().as_primitive();
    let fixed: &FixedSizeListArray = column(batch, "fixed");
    let fixed: &Float32Array = fixed.values().as_primitive();
    let bytes: &BinaryArray = column(batch, "bytes");
    let texts: &StringArray = column(batch, "text");
    for (row, id) in ids(batch).into_iter().enumerate() {
        for column in 0..WIDTH {
            let index = row * WIDTH + column;
            let value = 10 * id + column as i64;
            assert_eq!(lists.value(index), value as f32);
            assert_eq!(fixed.value(index), value as f32);
            assert_eq!(few.value(index), (column as i64 + id % 3) as f64);
        }
        assert_eq!(bytes.value(row), format!("{id:08}").as_bytes());
        assert_eq!(texts.value(row), text(id));
    }
    assert_eq!(batch.column("list").unwrap().width, Some(WIDTH));
    assert_eq!(batch.column("bytes").unwrap().width, Some(8));
}

#[test]
fn files_of_pyarrow_are_read_as_they_were_written() {
    for name in ["plain-v1", "dictionary-v1", "dictionary-v2", "checksums-v1"] {
        let dataset = Arc::new(Dataset::open_local([fixture(name)]).unwrap());
        let batches = drain(&mut reader(&dataset, ReaderOptions::default()), 33);
        batches.iter().for_each(check);
        let mut seen: Vec<i64> = batches.iter().flat_map(ids).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..240).collect::<Vec<_>>(), "{name}");
    }
}

/// A single flipped bit is detected if the writer stores checksums.
#[test]
fn a_wrong_bit_is_found_by_its_checksum() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let mut content = std::fs::read(fixture("checksums-v1")).unwrap();
    // Near the end of the content of the second column's first page.
    let dataset = {
        std::fs::write(&path, &content).unwrap();
        let file =
            parquet::file::reader::SerializedFileReader::new(std::fs::File::open(&path).unwrap())
                .unwrap();
        let group = parquet::file::reader::FileReader::metadata(&file)
            .row_group(0)
            .clone();
        let (start, length) = group.column(1).byte_range();
        content[(start + length - 2) as usize] ^= 1;
        std::fs::write(&path, &content).unwrap();
        Arc::new(Dataset::open_local([&path]).unwrap())
    };
    let error = reader(&dataset, ReaderOptions::default())
        .next_batch(10)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(
            "row group 0: column list: is damaged: a page has not the checksum that its header says"
        ),
        "{error}"
    );
}

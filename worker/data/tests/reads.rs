//! Columns are read from disk once. One test, since the kernel counts the reads of the whole process.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, path::Path, sync::Arc};

use arrow_array::{
    ArrayRef, BinaryArray, RecordBatch,
    builder::{Int32Builder, ListBuilder},
};
use common::{drain, reader, write_with};
use elasticrun_core::random::Random;
use elasticrun_data::{Dataset, ReaderOptions};
use parquet::{
    basic::{BrotliLevel, Compression, ZstdLevel},
    file::properties::WriterProperties,
};

const GROUPS: usize = 8;
const ROWS: usize = 1000;

/// Bytes that this process has read by system calls.
fn bytes_read() -> u64 {
    let counters = fs::read_to_string("/proc/self/io").unwrap();
    let read = counters
        .lines()
        .find_map(|line| line.strip_prefix("rchar: "));
    read.unwrap().trim().parse().unwrap()
}

/// Writes the column `x` and one that is not read. Returns the bytes of `x` in the file.
fn write(path: &Path, x: ArrayRef, compression: Compression) -> u64 {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(ROWS))
        .set_compression(compression)
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(64 << 10)
        .set_write_batch_size(50)
        .build();
    let batch = RecordBatch::try_from_iter([("x", x.clone()), ("other", x)]).unwrap();
    write_with(path, &batch, properties);
    let file = fs::File::open(path).unwrap();
    let reader = parquet::file::reader::SerializedFileReader::new(file).unwrap();
    let metadata = parquet::file::reader::FileReader::metadata(&reader);
    (metadata.row_groups().iter())
        .map(|group| group.column(0).compressed_size() as u64)
        .sum()
}

#[test]
fn ragged_columns_are_read_once() {
    let mut random = Random::from_seed(0);
    let lengths: Vec<usize> = (0..GROUPS * ROWS)
        .map(|_| 100 + random.next_u64() as usize % 1000)
        .collect();
    let strings: Vec<Vec<u8>> = (lengths.iter())
        .map(|length| (0..*length).map(|_| random.next_u64() as u8).collect())
        .collect();
    let mut lists = ListBuilder::new(Int32Builder::new());
    for length in &lengths {
        (0..length / 4).for_each(|_| lists.values().append_value(random.next_u64() as i32));
        lists.append(true);
    }
    let columns: [ArrayRef; 2] = [
        Arc::new(BinaryArray::from_iter_values(strings)),
        Arc::new(lists.finish()),
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    for compression in [
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        for column in &columns {
            let there = write(&path, column.clone(), compression);
            let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
            assert_eq!(dataset.groups().len(), GROUPS);
            let before = bytes_read();
            let options = ReaderOptions {
                columns: Some(vec!["x".to_owned()]),
                threads: 2,
                ..ReaderOptions::default()
            };
            let mut reader = reader(&dataset, options);
            let rows: usize = (drain(&mut reader, 256).iter())
                .map(|batch| batch.rows())
                .sum();
            assert_eq!(rows, GROUPS * ROWS);
            let counted = reader.bytes_read();
            let read = bytes_read() - before;
            let what = format!("{compression:?}, {:?}", column.data_type());
            assert_eq!(counted, there, "{what}");
            // The counters of the kernel are in a file, too.
            let once = there..=there + there / 100;
            assert!(once.contains(&read), "{what}: {read} for {there}");
        }
    }
}

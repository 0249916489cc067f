//! Pages without matching rows are not read: the rows are the same, with fewer bytes.

#![allow(clippy::unwrap_used)]

mod common;

use std::{path::Path, sync::Arc};

use arrow_array::{Array, ListArray, StringArray};
use common::{drain, ids, reader, rows, tensor, text, write_with};
use elasticrun_data::{Batch, Comparison, Dataset, Predicate, ReaderOptions, Value};
use parquet::{
    basic::{Compression, ZstdLevel},
    file::properties::{EnabledStatistics, WriterProperties},
};

const ROWS: i64 = 20_000;

/// Two row groups of 10,000 rows in pages of 200, with or without a page index.
fn written(directory: &Path, statistics: EnabledStatistics) -> Arc<Dataset> {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(10_000))
        .set_data_page_row_count_limit(200)
        .set_write_batch_size(100)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(statistics)
        .set_offset_index_disabled(statistics != EnabledStatistics::Page)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let path = directory.join("x.parquet");
    write_with(&path, &rows(0, ROWS), properties);
    Arc::new(Dataset::open_local([path]).unwrap())
}

fn between(low: i64, high: i64) -> Predicate {
    let compare = |comparison, value| Predicate::Compare {
        column: "id".to_owned(),
        comparison,
        value: Value::Int(value),
    };
    Predicate::And(vec![
        compare(Comparison::GreaterOrEqual, low),
        compare(Comparison::Less, high),
    ])
}

/// The batches with a predicate, and the bytes that were read for them.
fn read(dataset: &Arc<Dataset>, predicate: Option<Predicate>) -> (Vec<Batch>, u64) {
    let options = ReaderOptions {
        predicate,
        ..ReaderOptions::default()
    };
    let mut reader = reader(dataset, options);
    let batches = drain(&mut reader, 64);
    let processed: u64 = batches.iter().map(Batch::rows_processed).sum();
    assert_eq!(processed, ROWS as u64);
    (batches, reader.bytes_read())
}

/// Compares each row of the batches with the file.
fn check(batches: &[Batch], mut wanted: Vec<i64>) {
    let mut seen = Vec::new();
    for batch in batches {
        let column = |name: &str| batch.column(name).unwrap().array.clone();
        let (lists, texts) = (column("list"), column("text"));
        let lists: &ListArray = lists.as_any().downcast_ref().unwrap();
        let texts: &StringArray = texts.as_any().downcast_ref().unwrap();
        for (row, id) in ids(batch).into_iter().enumerate() {
            let list = lists.value(row);
            let list: &arrow_array::Float32Array = list.as_any().downcast_ref().unwrap();
            assert_eq!(list.values()[..], tensor(id));
            assert_eq!(texts.value(row), text(id));
            seen.push(id);
        }
    }
    seen.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
}

#[test]
fn pages_without_a_kept_row_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = written(directory.path(), EnabledStatistics::Page);
    let (_, whole) = read(&dataset, None);
    // Five rows of one page. The second predicate needs both row groups according to their footers.
    for (predicate, wanted) in [
        (
            between(12_345, 12_350),
            (12_345..12_350).collect::<Vec<_>>(),
        ),
        (
            Predicate::Or(vec![between(3, 5), between(19_990, 19_991)]),
            vec![3, 4, 19_990],
        ),
    ] {
        let (batches, bytes) = read(&dataset, Some(predicate));
        check(&batches, wanted);
        assert!(bytes * 8 < whole, "{bytes} of {whole} bytes");
    }
}

#[test]
fn a_predicate_that_keeps_most_rows_reads_all() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = written(directory.path(), EnabledStatistics::Page);
    let (batches, _) = read(&dataset, Some(between(100, 19_000)));
    check(&batches, (100..19_000).collect());
}

#[test]
fn a_predicate_between_the_bounds_of_all_pages_reads_no_column() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = written(directory.path(), EnabledStatistics::Page);
    let nothing = Predicate::Compare {
        column: "text".to_owned(),
        comparison: Comparison::Equal,
        value: Value::Text("row 5x".to_owned()),
    };
    let (_, whole) = read(&dataset, None);
    let (batches, bytes) = read(&dataset, Some(nothing));
    check(&batches, vec![]);
    assert!(bytes * 4 < whole, "{bytes} of {whole} bytes");
}

#[test]
fn without_an_index_of_pages_rows_are_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = written(directory.path(), EnabledStatistics::Chunk);
    let (batches, _) = read(&dataset, Some(between(12_345, 12_350)));
    check(&batches, (12_345..12_350).collect());
}

//! Windows of consecutive rows.

#![allow(clippy::unwrap_used)]

mod common;

use std::{path::Path, sync::Arc};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use common::{drain, reader, write};
use elasticrun_data::{Batch, Dataset, NGram, Predicate, Reader, ReaderOptions};

/// Row groups of 50 rows, with a gap in time after each tenth row.
fn written(directory: &Path) -> Arc<Dataset> {
    let times = (0..200_i64).map(|row| row * 2 + row / 10 * 100);
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..200))),
        ("time", Arc::new(Int64Array::from_iter_values(times))),
    ];
    let path = directory.join("x.parquet");
    write(&path, &RecordBatch::try_from_iter(columns).unwrap(), 50);
    Arc::new(Dataset::open_local([path]).unwrap())
}

fn windows(length: u32, delta: f64) -> NGram {
    let columns = (0..length).map(|row| (row, "id".to_owned()));
    NGram {
        length,
        timestamp: "time".to_owned(),
        delta,
        overlap: true,
        columns: columns.collect(),
    }
}

fn options(windows: NGram) -> ReaderOptions {
    ReaderOptions {
        ngram: Some(windows),
        ..ReaderOptions::default()
    }
}

/// The windows of batches, sorted.
fn ids_of(batches: &[Batch], length: u32) -> Vec<Vec<i64>> {
    let mut found: Vec<Vec<i64>> = Vec::new();
    for batch in batches {
        let columns: Vec<Vec<i64>> = (0..length)
            .map(|row| {
                let column = batch.column(&format!("{row}/id")).unwrap();
                let ids: &Int64Array = column.array.as_any().downcast_ref().unwrap();
                ids.values().to_vec()
            })
            .collect();
        found.extend((0..batch.rows()).map(|row| columns.iter().map(|ids| ids[row]).collect()));
    }
    found.sort();
    found
}

#[test]
fn windows_are_whole_shuffled_and_counted_by_their_first_rows() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = written(directory.path());
    let batches = drain(&mut reader(&dataset, options(windows(3, 2.0))), 16);
    // No window crosses a gap or the end of a row group.
    let wanted: Vec<Vec<i64>> = (0..200)
        .filter(|first| first % 10 < 8)
        .map(|first| (first..first + 3).collect())
        .collect();
    assert_eq!(ids_of(&batches, 3), wanted);
    let processed: u64 = batches.iter().map(Batch::rows_processed).sum();
    assert_eq!(processed, 200);
    let mut in_order = ids_of(&batches[..1], 3);
    in_order.dedup();
    assert_ne!(in_order, wanted[..16]);
}

#[test]
fn a_row_group_without_a_window_is_processed() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = written(directory.path());
    let batches = drain(&mut reader(&dataset, options(windows(60, 1e9))), 16);
    assert_eq!(batches.iter().map(Batch::rows).sum::<usize>(), 0);
    let processed: u64 = batches.iter().map(Batch::rows_processed).sum();
    assert_eq!(processed, 200);
}

#[test]
fn a_jump_may_be_allowed_but_the_end_of_a_group_not() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = written(directory.path());
    let batches = drain(&mut reader(&dataset, options(windows(2, 1e9))), 16);
    let wanted: Vec<Vec<i64>> = (0..200)
        .filter(|first| first % 50 < 49)
        .map(|first| vec![first, first + 1])
        .collect();
    assert_eq!(ids_of(&batches, 2), wanted);
}

#[test]
fn what_makes_no_sense_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = written(directory.path());
    let error = |options: ReaderOptions| Reader::new(dataset.clone(), options).unwrap_err();
    let mut beyond = windows(2, 1.0);
    beyond.columns.push((2, "id".to_owned()));
    assert_eq!(
        error(options(beyond)).to_string(),
        "2/id: a window has 2 rows, from 0"
    );
    let mut both = options(windows(2, 1.0));
    both.predicate = Some(Predicate::And(vec![]));
    assert!(
        error(both)
            .to_string()
            .starts_with("windows and a predicate: ")
    );
    let mut unknown = windows(2, 1.0);
    unknown.timestamp = "when".to_owned();
    assert_eq!(
        error(options(unknown)).to_string(),
        "column when: no such column; the columns are id, time"
    );
}

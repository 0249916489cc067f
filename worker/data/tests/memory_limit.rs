//! Files that promise far more than they hold are an error. They never end the process, even if its memory is limited.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    env,
    path::Path,
    process::{Command, Output},
    sync::Arc,
};

use arrow_array::{
    ArrayRef, BinaryArray, Int32Array, RecordBatch, StringArray,
    builder::{Int32Builder, ListBuilder},
};
use common::{
    craft::{Craft, Pages, data_page, footer, group, write_footer},
    reader,
};
use elasticrun_data::{Comparison, Dataset, Error, Predicate, ReaderOptions, Value};
use parquet::basic::Compression;

/// The file that `child` reads.
const FILE: &str = "ELASTICRUN_TEST_FILE";
/// Kibibytes of address space of the child: less than each of the files asks for.
const LIMIT: u32 = 2 << 20;

/// Runs in a process of its own. Does nothing if no file is given.
#[test]
fn child() {
    if let Some(path) = env::var_os(FILE) {
        println!("read: {}", read(Path::new(&path)).unwrap_err());
    }
}

fn read(path: &Path) -> Result<(), Error> {
    let dataset = Arc::new(Dataset::open_local([path])?);
    let first = Predicate::Compare {
        column: "x".to_owned(),
        comparison: Comparison::Less,
        value: Value::Int(1),
    };
    let is_number = (dataset.schema())
        .is_some_and(|schema| schema.field(0).data_type() == &arrow_schema::DataType::Int32);
    let options = ReaderOptions {
        predicate: is_number.then_some(first),
        ..ReaderOptions::default()
    };
    reader(&dataset, options).next_batch(1)?;
    Ok(())
}

fn in_child(path: &Path) -> Output {
    Command::new("sh")
        .args(["-c", r#"ulimit -v "$0"; exec "$@""#, &LIMIT.to_string()])
        .arg(env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(FILE, path)
        .output()
        .unwrap()
}

#[track_caller]
fn expect(path: &Path, error: &str) {
    let output = in_child(path);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    let line = text.lines().find(|line| line.contains("read: "));
    let line = line.unwrap_or_else(|| panic!("no error: {text}"));
    assert!(line.contains(error), "{line}");
}

fn column(array: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter([("x", array)]).unwrap()
}

fn numbers(rows: i32) -> RecordBatch {
    column(Arc::new(Int32Array::from_iter_values(0..rows)))
}

const MANY: i64 = 1 << 31;

#[test]
fn rows_that_only_the_footer_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let texts = column(Arc::new(BinaryArray::from_vec(vec![
        b"a", b"bc", b"d", b"e",
    ])));
    for batch in [numbers(4), texts] {
        let craft = Craft {
            rows: Some(MANY),
            ..Craft::default()
        };
        craft.write(&path, &batch);
        expect(
            &path,
            "column x: is damaged: it has 4 values, the row group 2147483648 rows",
        );
        let craft = Craft {
            column: Some(|column| column.set_num_values(MANY)),
            ..craft
        };
        craft.write(&path, &batch);
        let why = "column x: is damaged: its pages hold 4 values, the footer says 2147483648 rows";
        expect(&path, why);
    }
}

/// The pages say it too: a run of nulls of a few bytes, which is valid.
#[test]
fn rows_for_which_there_is_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let nulls = Int32Array::from(vec![None, Some(1)]);
    let craft = Craft {
        rows: Some(MANY - 1),
        pages: Some(|_| {
            // A run of 2^31 - 1 definition levels of 0.
            let levels = [6, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0];
            data_page(MANY - 1, 0, levels.len() as i64, &levels)
        }),
        column: Some(|column| column.set_num_values(MANY - 1)),
        ..Craft::default()
    };
    craft.write(&path, &column(Arc::new(nulls)));
    expect(
        &path,
        "column x: needs 8.6 GB of memory, which this process cannot get",
    );
}

/// Lists and strings that are missing take a few bytes as well.
#[test]
fn missing_rows_for_which_there_is_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append(false);
    let lists = column(Arc::new(lists.finish()));
    let texts = column(Arc::new(StringArray::from(vec![None, Some("a")])));
    // A run of 2^31 - 1 levels of 0, once for each kind of levels.
    fn pages(kinds: usize) -> Vec<u8> {
        let levels = [6, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0].repeat(kinds);
        data_page(MANY - 1, 0, levels.len() as i64, &levels)
    }
    for (batch, pages) in [(lists, (|_| pages(2)) as Pages), (texts, |_| pages(1))] {
        let craft = Craft {
            rows: Some(MANY - 1),
            pages: Some(pages),
            column: Some(|column| column.set_num_values(MANY - 1)),
            ..Craft::default()
        };
        craft.write(&path, &batch);
        expect(
            &path,
            "column x: needs 17.2 GB of memory, which this process cannot get",
        );
    }
}

#[test]
fn a_page_header_that_promises_two_gibibytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let craft = Craft {
        written: Some(Compression::SNAPPY),
        pages: Some(|_| data_page(4, 0, i64::from(i32::MAX), &[0; 20])),
        ..Craft::default()
    };
    craft.write(&path, &numbers(4));
    expect(
        &path,
        "column x: needs 2.1 GB of memory, which this process cannot get",
    );
}

#[test]
fn an_offset_index_of_two_billion_pages() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let craft = Craft {
        offset_index: Some(|| vec![0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0]),
        ..Craft::default()
    };
    // Indexes are read for chunks of more than one read.
    craft.write(&path, &numbers(10_000));
    expect(&path, "its page index is invalid");
}

#[test]
fn a_schema_of_two_billion_columns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    write_footer(&path, &footer(1, &group(i64::from(i32::MAX))));
    expect(&path, "its schema has fewer elements than it says");
}

#[test]
fn a_schema_of_a_hundred_thousand_levels() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let levels = 100_000;
    write_footer(&path, &footer(levels, &group(1).repeat(levels as usize)));
    expect(&path, "its schema has more than 100 levels");
}

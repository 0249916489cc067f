//! Partition columns, metadata of writers, and data sets with selected row groups.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, path::Path, sync::Arc};

use arrow_array::{Array, Int64Array, StringArray};
use arrow_schema::DataType;
use common::{drain, ids, reader, rows, three_files, write};
use elasticrun_data::{
    Batch, Comparison, Dataset, Predicate, Problem, ReaderOptions, StorageOptions, Value,
};
use parquet::file::{metadata::KeyValue, properties::WriterProperties};

/// Six files of ten rows: two days, three kinds.
fn by_day(directory: &Path) -> Arc<Dataset> {
    for (number, day) in [7, 11].into_iter().enumerate() {
        for (index, kind) in ["a", "b%20c", "__HIVE_DEFAULT_PARTITION__"]
            .into_iter()
            .enumerate()
        {
            let below = directory.join(format!("day={day}/kind={kind}"));
            fs::create_dir_all(&below).unwrap();
            let first = (30 * number + 10 * index) as i64;
            write(&below.join("x.parquet"), &rows(first, first + 10), 5);
        }
    }
    Arc::new(Dataset::open_local([directory]).unwrap())
}

fn options(columns: &[&str]) -> ReaderOptions {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    ReaderOptions {
        columns: Some(columns),
        ..ReaderOptions::default()
    }
}

/// (id, day, kind) of each row, sorted.
fn all_of(batches: &[Batch]) -> Vec<(i64, i64, Option<String>)> {
    let mut all: Vec<_> = (batches.iter())
        .flat_map(|batch| {
            let column = |name: &str| batch.column(name).unwrap().array.clone();
            let (days, kinds) = (column("day"), column("kind"));
            let days: &Int64Array = days.as_any().downcast_ref().unwrap();
            let kinds: &StringArray = kinds.as_any().downcast_ref().unwrap();
            let values = days.values().to_vec().into_iter();
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.map(str::to_owned)).collect();
            ids(batch)
                .into_iter()
                .zip(values)
                .zip(kinds)
                .map(|((id, day), kind)| (id, day, kind))
        })
        .collect();
    all.sort();
    all
}

fn expected(id: i64) -> (i64, i64, Option<String>) {
    let kind = match id % 30 / 10 {
        0 => Some("a".to_owned()),
        1 => Some("b c".to_owned()),
        _ => None,
    };
    (id, if id < 30 { 7 } else { 11 }, kind)
}

#[test]
fn keys_of_directories_are_columns() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = by_day(directory.path());
    let schema = dataset.schema().unwrap();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["id", "list", "bytes", "text", "day", "kind"]);
    assert_eq!(*schema.field(4).data_type(), DataType::Int64);
    assert_eq!(*schema.field(5).data_type(), DataType::Utf8);

    let batches = drain(&mut reader(&dataset, options(&["kind", "id", "day"])), 7);
    assert_eq!(all_of(&batches), (0..60).map(expected).collect::<Vec<_>>());
}

#[test]
fn a_column_of_a_directory_may_be_the_only_one() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = by_day(directory.path());
    let batches = drain(&mut reader(&dataset, options(&["day"])), 16);
    assert_eq!(batches.iter().map(Batch::rows).sum::<usize>(), 60);
    assert_eq!(batches[0].schema().fields().len(), 1);
}

#[test]
fn predicates_see_the_names_and_leave_files_unread() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = by_day(directory.path());
    let predicate = Predicate::And(vec![
        Predicate::Compare {
            column: "day".to_owned(),
            comparison: Comparison::Greater,
            value: Value::Int(7),
        },
        Predicate::Not(Box::new(Predicate::IsNull {
            column: "kind".to_owned(),
        })),
    ]);
    let held = dataset.may_hold(&predicate).unwrap();
    let groups: Vec<usize> = (0..held.len()).filter(|group| held[*group]).collect();
    // Files are sorted by name, so the file without a kind is the first of each day.
    assert_eq!(groups, [2, 3, 4, 5]);

    let mut read = reader(
        &dataset,
        ReaderOptions {
            predicate: Some(predicate),
            ..options(&["id", "day", "kind"])
        },
    );
    let wanted: Vec<_> = (30..50).map(expected).collect();
    assert_eq!(all_of(&drain(&mut read, 7)), wanted);
    let mut whole = reader(&dataset, options(&["id", "day", "kind"]));
    drain(&mut whole, 7);
    assert!(
        read.bytes_read() * 2 < whole.bytes_read(),
        "{} of {}",
        read.bytes_read(),
        whole.bytes_read()
    );
}

#[test]
fn a_file_without_the_key_is_named() {
    let directory = tempfile::tempdir().unwrap();
    by_day(directory.path());
    write(&directory.path().join("stray.parquet"), &rows(0, 1), 5);
    let dataset = Arc::new(Dataset::open_local([directory.path()]).unwrap());
    let error = elasticrun_data::Reader::new(dataset, options(&["id", "day"])).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("stray.parquet: column day: is missing here, but is in "),
        "{text}"
    );
}

#[test]
fn a_file_s_own_column_goes_before_the_name() {
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("id=99");
    fs::create_dir(&below).unwrap();
    write(&below.join("x.parquet"), &rows(0, 3), 5);
    let dataset = Arc::new(Dataset::open_local([directory.path()]).unwrap());
    let batches = drain(&mut reader(&dataset, options(&["id"])), 7);
    let mut all: Vec<i64> = batches.iter().flat_map(ids).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
}

#[test]
fn selected_row_groups_are_a_data_set_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    drop(three_files(directory.path()));
    let dataset = Dataset::open_local([directory.path()]).unwrap();
    let dataset = Arc::new(dataset.select(|number, group| number == 1 || group.file == 1));
    assert_eq!((dataset.groups().len(), dataset.rows()), (2, 129));
    let batches = drain(&mut reader(&dataset, ReaderOptions::default()), 50);
    let mut all: Vec<i64> = batches.iter().flat_map(ids).collect();
    all.sort_unstable();
    assert_eq!(all, (128..256).chain([1000]).collect::<Vec<_>>());
}

#[test]
fn notes_of_a_writer_are_found_beside_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let paths = [directory.path().to_str().unwrap().to_owned()];
    let found = |key| Dataset::note(&paths, "_common_metadata", key, &StorageOptions::default());
    assert_eq!(found("schema").unwrap(), None);
    let entry = KeyValue::new("schema".to_owned(), "of a kind".to_owned());
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(vec![entry]))
        .build();
    let path = directory.path().join("_common_metadata");
    common::write_with(&path, &rows(0, 0), properties);
    let note = |key| found(key).unwrap();
    assert_eq!(note("schema").as_deref(), Some(&b"of a kind"[..]));
    assert_eq!(note("other"), None);
    assert_eq!(dataset.number_of_files(), 3);

    fs::write(&path, "nonsense").unwrap();
    let error = found("schema").unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("_common_metadata: is no Parquet file"),
        "{text}"
    );
}

/// The files are identified by their content at the end, their size and their name, wherever they are.
#[test]
fn another_data_set_of_the_same_shape_has_another_identity() {
    let directory = tempfile::tempdir().unwrap();
    let identity = |name: &str| {
        let dataset = Dataset::open_local([directory.path().join(name)]).unwrap();
        dataset.identity()
    };
    let set = |name: &str, first: i64| {
        let below = directory.path().join(name).join("day=1");
        fs::create_dir_all(&below).unwrap();
        write(&below.join("x.parquet"), &rows(first, first + 100), 50);
    };
    set("set", 100);
    set("copy", 100);
    set("other", 300);
    set("renamed", 100);
    let renamed = directory.path().join("renamed/day=1");
    fs::rename(renamed.join("x.parquet"), renamed.join("y.parquet")).unwrap();
    assert_eq!(identity("set"), identity("copy"));
    assert_ne!(identity("set"), identity("other"));
    assert_ne!(identity("set"), identity("renamed"));
    let one = identity("set/day=1/x.parquet");
    assert_eq!(
        one,
        identity("set/day=1"),
        "a file, and the directory that holds it"
    );
    let half = |name: &str| {
        let dataset = Dataset::open_local([directory.path().join(name)]).unwrap();
        dataset.select(|group, _| group == 1).identity()
    };
    assert_eq!(half("set"), half("copy"));
    assert_ne!(half("set"), identity("set"));
    assert_ne!(half("set"), half("other"));
}

#[test]
fn a_pattern_is_told_that_names_are_taken_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.parquet");
    write(&file, &rows(0, 10), 5);
    for pattern in ["*.parquet", "[xy].parquet", "x?parquet"] {
        let error = Dataset::open_local([directory.path().join(pattern)]).unwrap_err();
        assert!(matches!(error.problem(), Problem::Pattern), "{error}");
    }
    // A name may have such a character.
    let named = directory.path().join("x*.parquet");
    fs::rename(file, &named).unwrap();
    Dataset::open_local([&named]).unwrap();
}

//! Rows that a predicate drops are processed and counted, and are in no batch.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, sync::Arc};

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::Field;
use common::{drain, ids, reader, text, three_files, write};
use elasticrun_data::{Batch, Comparison, Dataset, Predicate, Reader, ReaderOptions, Value};
use proptest::prelude::*;

fn is(column: &str, comparison: Comparison, value: Value) -> Predicate {
    Predicate::Compare {
        column: column.to_owned(),
        comparison,
        value,
    }
}

fn options(predicate: Predicate) -> ReaderOptions {
    ReaderOptions {
        predicate: Some(predicate),
        shuffle_rows: 300,
        ..ReaderOptions::default()
    }
}

/// The numbers of all rows, sorted, and the number of processed rows.
fn totals(batches: &[Batch]) -> (Vec<i64>, u64) {
    let mut seen: Vec<i64> = batches.iter().flat_map(ids).collect();
    seen.sort_unstable();
    let processed = batches.iter().map(Batch::rows_processed).sum();
    (seen, processed)
}

#[test]
fn batches_are_full_of_rows_that_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let wanted: Vec<i64> = (0..1501).filter(|id| id % 10 >= 7).collect();
    let one_of = Predicate::In {
        column: "text".to_owned(),
        values: wanted.iter().map(|id| Value::Text(text(*id))).collect(),
    };
    for memory in [0, 1 << 30] {
        let options = ReaderOptions {
            memory,
            ..options(one_of.clone())
        };
        let batches = drain(&mut reader(&dataset, options), 16);
        assert_eq!(totals(&batches), (wanted.clone(), 1501));
        assert!(batches.iter().rev().skip(1).all(|batch| batch.rows() == 16));
        for batch in &batches {
            for (origin, id) in batch.origins().iter().zip(ids(batch)) {
                let group = batch.spans()[origin.span as usize].group;
                let before: u32 = dataset.groups()[..group as usize]
                    .iter()
                    .map(|group| group.rows)
                    .sum();
                assert_eq!(i64::from(before + origin.row), id);
            }
        }
    }
}

#[test]
fn a_predicate_that_drops_everything_leaves_one_empty_batch() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    for predicate in [
        is("id", Comparison::Greater, Value::Int(5000)),
        is("text", Comparison::Equal, Value::Text("row".to_owned())),
        Predicate::And(vec![
            is("id", Comparison::Equal, Value::Int(3)),
            is("text", Comparison::Equal, Value::Text(text(4))),
        ]),
    ] {
        let mut reader = reader(&dataset, options(predicate));
        let batches = drain(&mut reader, 16);
        assert_eq!(totals(&batches), (vec![], 1501));
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0].columns().len(), 4);
        assert_eq!(reader.rows_left(), 0);
        assert!(reader.progress().iter().all(|cursor| cursor.is_done()));
    }
}

/// Row groups that statistics exclude are not read: their file may be gone.
#[test]
fn groups_that_cannot_hold_a_row_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let predicate = is("id", Comparison::Less, Value::Int(200));
    let may_hold: Vec<usize> = (0..)
        .zip(dataset.may_hold(&predicate).unwrap())
        .filter(|(_, may)| *may)
        .map(|(group, _)| group)
        .collect();
    assert_eq!(may_hold, [0, 1]);
    fs::remove_file(directory.path().join("b.parquet")).unwrap();
    fs::remove_file(directory.path().join("c.parquet")).unwrap();
    let batches = drain(&mut reader(&dataset, options(predicate)), 64);
    assert_eq!(totals(&batches), ((0..200).collect(), 1501));
}

/// The columns of the predicate need not be selected.
#[test]
fn columns_of_the_predicate_are_read_beside_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let options = ReaderOptions {
        columns: Some(vec!["id".to_owned()]),
        ..options(is("text", Comparison::Equal, Value::Text(text(77))))
    };
    let batches = drain(&mut reader(&dataset, options), 64);
    assert_eq!(totals(&batches), (vec![77], 1501));
    assert_eq!(batches[0].columns().len(), 1);
}

#[test]
fn predicates_that_cannot_be_are_refused_when_the_reader_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let refusal = |predicate| {
        Reader::new(dataset.clone(), options(predicate))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refusal(is("x", Comparison::Less, Value::Int(1))),
        "column x: no such column; the columns are id, list, bytes, text"
    );
    assert_eq!(
        refusal(is("text", Comparison::Less, Value::Int(1))),
        "column text: cannot compare a column of type Utf8 with 1"
    );
}

/// A number and nullable values.
type Row = (i64, Option<i64>, Option<f64>, Option<String>);

/// Columns with nulls, NaN, and adjacent bounds.
fn odd_rows() -> Vec<Row> {
    (0..200)
        .map(|id| {
            let number = (id % 9 != 2).then_some((id / 40) * 10 + id % 3);
            let float = match id % 11 {
                3 => None,
                5 => Some(f64::NAN),
                7 => Some(-0.0),
                _ => Some((id / 50) as f64),
            };
            let text = (id < 100 || id % 2 == 0).then(|| format!("{}", id / 20));
            (id, number, float, text)
        })
        .collect()
}

fn any_predicate() -> impl Strategy<Value = Predicate> {
    let comparison = prop::sample::select(vec![
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ]);
    let number = || {
        prop_oneof![
            (-1..45_i64).prop_map(Value::Int),
            (-1..45_i64).prop_map(|x| Value::Float(x as f64 / 2.0))
        ]
    };
    let on_number = (prop::sample::select(vec!["n", "f"]), number());
    let on_text = (0..12_i64).prop_map(|x| ("t", Value::Text(x.to_string())));
    let leaf = prop_oneof![
        (prop_oneof![on_number, on_text], comparison)
            .prop_map(|((column, value), comparison)| is(column, comparison, value)),
        prop::sample::select(vec!["n", "f", "t"]).prop_map(|column| Predicate::IsNull {
            column: column.to_owned()
        }),
        prop::collection::vec(number(), 0..3).prop_map(|values| Predicate::In {
            column: "n".to_owned(),
            values
        }),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner
                .clone()
                .prop_map(|inner| Predicate::Not(Box::new(inner))),
            prop::collection::vec(inner.clone(), 0..3).prop_map(Predicate::And),
            prop::collection::vec(inner, 0..3).prop_map(Predicate::Or),
        ]
    })
}

/// The value of the predicate for a row in the simplest way; `None` if unknown.
fn holds(predicate: &Predicate, row: &Row) -> Option<bool> {
    let compare = |column: &str, comparison: Comparison, value: &Value| {
        let order = match (column, value) {
            ("n", Value::Int(value)) => row.1?.partial_cmp(value),
            ("n", Value::Float(value)) => (row.1? as f64).partial_cmp(value),
            ("f", Value::Int(value)) => row.2?.partial_cmp(&(*value as f64)),
            ("f", Value::Float(value)) => row.2?.partial_cmp(value),
            ("t", Value::Text(value)) => row.3.as_ref()?.partial_cmp(value),
            other => panic!("{other:?}"),
        };
        Some(match comparison {
            Comparison::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Comparison::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
            Comparison::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Comparison::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Comparison::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Comparison::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        })
    };
    match predicate {
        Predicate::Compare {
            column,
            comparison,
            value,
        } => compare(column, *comparison, value),
        Predicate::In { column, values } => {
            row.1?;
            Some(
                values
                    .iter()
                    .any(|value| compare(column, Comparison::Equal, value) == Some(true)),
            )
        }
        Predicate::IsNull { column } => Some(match column.as_str() {
            "n" => row.1.is_none(),
            "f" => row.2.is_none(),
            _ => row.3.is_none(),
        }),
        Predicate::Not(inner) => holds(inner, row).map(|holds| !holds),
        Predicate::And(parts) => {
            let parts: Vec<_> = parts.iter().map(|part| holds(part, row)).collect();
            if parts.contains(&Some(false)) {
                Some(false)
            } else {
                (!parts.contains(&None)).then_some(true)
            }
        }
        Predicate::Or(parts) => {
            let parts: Vec<_> = parts.iter().map(|part| holds(part, row)).collect();
            if parts.contains(&Some(true)) {
                Some(true)
            } else {
                (!parts.contains(&None)).then_some(false)
            }
        }
    }
}

/// The predicate on the fields of structure `s` in place of columns.
fn on_fields(predicate: Predicate) -> Predicate {
    let all = |parts: Vec<Predicate>| parts.into_iter().map(on_fields).collect();
    let of = |column: String| format!("s.{column}");
    match predicate {
        Predicate::Compare {
            column,
            comparison,
            value,
        } => is(&of(column), comparison, value),
        Predicate::In { column, values } => Predicate::In {
            column: of(column),
            values,
        },
        Predicate::IsNull { column } => Predicate::IsNull { column: of(column) },
        Predicate::Not(inner) => Predicate::Not(Box::new(on_fields(*inner))),
        Predicate::And(parts) => Predicate::And(all(parts)),
        Predicate::Or(parts) => Predicate::Or(all(parts)),
    }
}

/// All fields of a structure that is missing are null.
fn structure(columns: &[(&str, ArrayRef)], rows: &mut [Row]) -> ArrayRef {
    let valid: NullBuffer = rows
        .iter()
        .map(|row| row.0 % 13 != 4)
        .collect::<Vec<_>>()
        .into();
    for row in rows.iter_mut().filter(|row| row.0 % 13 == 4) {
        (row.1, row.2, row.3) = (None, None, None);
    }
    let fields = columns
        .iter()
        .map(|(name, values)| Field::new(*name, values.data_type().clone(), true));
    let arrays = columns.iter().map(|(_, values)| values.clone());
    Arc::new(StructArray::new(
        fields.collect(),
        arrays.collect(),
        Some(valid),
    ))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Pruning and evaluation together keep the same rows as an evaluation row by row, of columns and of fields.
    #[test]
    fn kept_are_the_rows_for_which_it_is_true(predicate in any_predicate(), nested: bool) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.parquet");
        let mut rows = odd_rows();
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1)))),
            ("f", Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.2)))),
            ("t", Arc::new(StringArray::from_iter(rows.iter().map(|row| row.3.clone())))),
        ];
        let columns = match nested {
            true => vec![("s", structure(&columns, &mut rows))],
            false => columns.to_vec(),
        };
        let batch = RecordBatch::try_from_iter([("id", ids)].into_iter().chain(columns)).unwrap();
        write(&path, &batch, 20);
        let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
        let wanted: Vec<i64> = rows.iter().filter(|row| holds(&predicate, row) == Some(true)).map(|row| row.0).collect();
        let predicate = if nested { on_fields(predicate) } else { predicate };
        let batches = drain(&mut reader(&dataset, options(predicate)), 7);
        prop_assert_eq!(totals(&batches), (wanted, 200));
    }
}

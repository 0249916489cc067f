//! The reader returns what is in the file, for all types, encodings and codecs.

#![allow(clippy::unwrap_used)]

mod common;

use std::{path::Path, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    FixedSizeBinaryArray, Float64Array, Int64Array, LargeBinaryArray, LargeStringArray,
    RecordBatch, StringArray, StructArray, TimestampMicrosecondArray, UInt8Array, UInt32Array,
    builder::{
        FixedSizeListBuilder, Float32Builder, Float64Builder, Int16Builder, LargeListBuilder,
        ListBuilder,
    },
    types::Int32Type,
};
use arrow_select::{concat::concat, take::take};
use common::{WIDTH, drain, ids, reader, rows, tensor, text, write_with};
use elasticrun_core::random::Random;
use elasticrun_data::{
    Comparison, Dataset, Predicate, Reader, ReaderOptions, Value,
    elastic::{Elastic, ElasticOptions},
};
use elasticrun_ledger::ReadOrder;
use parquet::{
    basic::{Compression, ZstdLevel},
    file::properties::{WriterProperties, WriterVersion},
};

const ROWS: i64 = 700;

fn each<T>(make: impl Fn(i64) -> T) -> impl Iterator<Item = T> {
    (0..ROWS).map(make)
}

/// A number for each row, with nulls.
fn sparse(id: i64) -> Option<i64> {
    (id % 7 != 3).then_some(id)
}

/// Bytes that no codec can reduce.
fn noise(id: i64) -> Vec<u8> {
    let mut random = Random::keyed(&[id as u64]);
    (0..25)
        .flat_map(|_| random.next_u64().to_le_bytes())
        .collect()
}

/// Columns of many types in addition to those of all tests.
fn many_types() -> RecordBatch {
    let mut fixed_lists = FixedSizeListBuilder::new(Float64Builder::new(), 3);
    let mut large_lists = LargeListBuilder::new(Int16Builder::new());
    let mut ragged = ListBuilder::new(Float32Builder::new());
    let mut sparse_lists = ListBuilder::new(Float32Builder::new());
    let mut nested = ListBuilder::new(ListBuilder::new(Float32Builder::new()));
    for id in 0..ROWS {
        fixed_lists.values().append_slice(&[id as f64, 0.5, -1.0]);
        fixed_lists.append(true);
        large_lists.values().append_slice(&[id as i16; 4]);
        large_lists.append(true);
        ragged.values().append_slice(&tensor(id)[..id as usize % 5]);
        ragged.append(id % 11 != 4);
        sparse_lists.values().append_slice(&tensor(id)[..3]);
        sparse_lists
            .values()
            .append_option((id % 13 != 5).then_some(1.0));
        sparse_lists.append(true);
        nested.values().values().append_slice(&tensor(id)[..2]);
        nested.values().append(true);
        nested.append(true);
    }
    let inner: [(&str, ArrayRef); 2] = [
        ("a", Arc::new(Int64Array::from_iter(each(sparse)))),
        ("b", Arc::new(StringArray::from_iter_values(each(text)))),
    ];
    let inner = RecordBatch::try_from_iter(inner).unwrap();
    let words: DictionaryArray<Int32Type> =
        each(|id| ["one", "two", "three"][id as usize % 3]).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "bool",
            Arc::new(BooleanArray::from_iter(each(|id| Some(id % 3 == 0)))),
        ),
        (
            "u8",
            Arc::new(UInt8Array::from_iter_values(each(|id| id as u8))),
        ),
        (
            "u32",
            Arc::new(UInt32Array::from_iter_values(each(|id| id as u32))),
        ),
        ("sparse", Arc::new(Int64Array::from_iter(each(sparse)))),
        (
            "f64",
            Arc::new(Float64Array::from_iter_values(each(|id| id as f64 / 7.0))),
        ),
        (
            "date",
            Arc::new(Date32Array::from_iter_values(each(|id| id as i32))),
        ),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from_iter_values(0..ROWS).with_timezone("UTC")),
        ),
        (
            "decimal",
            Arc::new(
                Decimal128Array::from_iter_values(each(i128::from))
                    .with_precision_and_scale(20, 3)
                    .unwrap(),
            ),
        ),
        (
            "large_text",
            Arc::new(LargeStringArray::from_iter(each(|id| sparse(id).map(text)))),
        ),
        (
            "large_bytes",
            Arc::new(LargeBinaryArray::from_iter_values(each(|id| text(id % 10)))),
        ),
        (
            "same_bytes",
            Arc::new(LargeBinaryArray::from_iter_values(each(|id| {
                (id % 50).to_le_bytes()
            }))),
        ),
        (
            "noise",
            Arc::new(BinaryArray::from_iter_values(each(noise))),
        ),
        (
            "fixed_bytes",
            Arc::new(FixedSizeBinaryArray::try_from_iter(each(|id| id.to_le_bytes())).unwrap()),
        ),
        (
            "empty",
            Arc::new(LargeBinaryArray::from_iter_values(each(|_| ""))),
        ),
        ("words", Arc::new(words)),
        ("fixed_lists", Arc::new(fixed_lists.finish())),
        ("large_lists", Arc::new(large_lists.finish())),
        ("ragged", Arc::new(ragged.finish())),
        ("sparse_lists", Arc::new(sparse_lists.finish())),
        ("nested", Arc::new(nested.finish())),
        ("struct", Arc::new(StructArray::from(inner))),
    ];
    let common = rows(0, ROWS);
    let common = common
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .zip(common.columns().to_vec())
        .collect::<Vec<_>>();
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name.to_owned(), column));
    RecordBatch::try_from_iter(common.into_iter().chain(columns)).unwrap()
}

/// Reads a file in order and shuffled, and compares all columns.
fn compare(path: &Path, written: &RecordBatch) {
    let dataset = Arc::new(Dataset::open_local([path]).unwrap());
    for (shuffle, memory) in [(false, 1 << 30), (true, 1 << 30), (true, 0)] {
        let options = ReaderOptions {
            shuffle,
            memory,
            shuffle_rows: 400,
            ..ReaderOptions::default()
        };
        let batches = drain(&mut reader(&dataset, options), 60);
        let order: Vec<i64> = batches.iter().flat_map(ids).collect();
        assert_eq!(order.len(), written.num_rows());
        let order = Int64Array::from(order);
        for (field, column) in written.schema().fields().iter().zip(written.columns()) {
            let parts: Vec<&dyn Array> = batches
                .iter()
                .map(|batch| &*batch.column(field.name()).unwrap().array)
                .collect();
            assert_eq!(parts[0].data_type(), column.data_type(), "{}", field.name());
            let read = concat(&parts).unwrap();
            read.to_data().validate_full().unwrap();
            assert_eq!(
                &read,
                &take(column, &order, None).unwrap(),
                "{}",
                field.name()
            );
        }
    }
}

#[test]
fn all_types_survive_all_ways_of_writing() {
    let directory = tempfile::tempdir().unwrap();
    let written = many_types();
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
    ];
    for codec in codecs {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [false, true] {
                let properties = WriterProperties::builder()
                    .set_compression(codec)
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    .set_dictionary_page_size_limit(2000)
                    .set_data_page_row_count_limit(37)
                    .set_write_batch_size(16)
                    .set_max_row_group_row_count(Some(150))
                    .build();
                let path = directory.path().join("x.parquet");
                write_with(&path, &written, properties);
                compare(&path, &written);
            }
        }
    }
}

/// Tensors are one contiguous array with their shape.
#[test]
fn rows_of_one_size_have_a_width() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    write_with(&path, &many_types(), WriterProperties::builder().build());
    let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
    let batch = reader(&dataset, ReaderOptions::default())
        .next_batch(100)
        .unwrap()
        .unwrap();
    let width = |name: &str| batch.column(name).unwrap().width;
    assert_eq!(width("list"), Some(WIDTH));
    assert_eq!(width("bytes"), Some(4 * WIDTH));
    assert_eq!(width("same_bytes"), Some(8));
    assert_eq!(width("noise"), Some(200));
    assert_eq!(width("fixed_bytes"), Some(8));
    assert_eq!(width("fixed_lists"), Some(3));
    assert_eq!(width("large_lists"), Some(4));
    for other in [
        "id",
        "ragged",
        "sparse_lists",
        "nested",
        "large_text",
        "text",
        "words",
        "struct",
    ] {
        assert_eq!(width(other), None, "{other}");
    }
}

/// A column may have tensors in one row group, and rows of other lengths or nulls in the next.
#[test]
fn row_groups_in_different_forms_go_into_one_batch() {
    let directory = tempfile::tempdir().unwrap();
    let column = |lengths: fn(i64) -> Option<usize>| -> ArrayRef {
        let mut lists = ListBuilder::new(Float32Builder::new());
        for id in 0..300 {
            match lengths(id) {
                Some(length) => {
                    lists.values().append_slice(&tensor(id)[..length]);
                    lists.append(true);
                }
                None => lists.append(false),
            }
        }
        Arc::new(lists.finish())
    };
    type Length = fn(i64) -> Option<usize>;
    let other_length: Length = |id| Some(if id < 100 { 4 } else { 5 });
    let ragged: Length = |id| Some(if id < 100 { 4 } else { id as usize % 4 });
    let sparse: Length = |id| (id < 100 || id % 2 == 0).then_some(4);
    for lengths in [other_length, ragged, sparse] {
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(Int64Array::from_iter_values(0..300))),
            ("list", column(lengths)),
        ];
        let written = RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, column)| (name, column, true)),
        )
        .unwrap();
        let path = directory.path().join("x.parquet");
        common::write(&path, &written, 100);
        compare(&path, &written);
    }
}

#[test]
fn widths_are_known_without_a_row() {
    let directory = tempfile::tempdir().unwrap();
    // The first row group has no row.
    for (name, rows) in [("a", rows(0, 0)), ("b", rows(0, 3))] {
        let path = directory.path().join(name);
        common::write(&path, &rows, 100);
    }
    let dataset = Arc::new(Dataset::open_local([directory.path()]).unwrap());
    let widths = [None, Some(WIDTH), Some(WIDTH * 4), None];
    let reader = Reader::new(dataset.clone(), ReaderOptions::default()).unwrap();
    assert_eq!(reader.widths(), widths);
    let dropped = Predicate::Compare {
        column: "id".to_owned(),
        comparison: Comparison::Less,
        value: Value::Int(0),
    };
    for order in [ReadOrder::default(), ReadOrder::Deterministic(60)] {
        for (shard, predicate) in [(6, None), (0, Some(dropped.clone()))] {
            let options = ElasticOptions {
                batch: std::num::NonZeroU32::new(3).unwrap(),
                weight: 1,
                order,
                reader: ReaderOptions {
                    predicate,
                    ..ReaderOptions::default()
                },
            };
            let mut elastic = Elastic::new(dataset.clone(), options).unwrap();
            elastic.enter_shard(shard, 7).unwrap();
            let batch = elastic.next_batch().unwrap().unwrap();
            assert_eq!(batch.rows(), 0);
            let found: Vec<_> = batch.columns().iter().map(|column| column.width).collect();
            assert_eq!(found, widths);
        }
    }
}

#[test]
fn rows_of_any_length_have_no_width() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let mut lists = ListBuilder::new(Float32Builder::new());
    for id in 0..3 {
        lists.values().append_slice(&tensor(id)[..id as usize]);
        lists.append(true);
    }
    let batch = RecordBatch::try_from_iter([("x", Arc::new(lists.finish()) as ArrayRef)]).unwrap();
    common::write(&path, &batch, 100);
    let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
    let reader = Reader::new(dataset, ReaderOptions::default()).unwrap();
    assert_eq!(reader.widths(), [None]);
}

//! Data sets that the tests write.

// Each test file uses its own part.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod craft;

use std::{fs::File, path::Path, sync::Arc};

use arrow_array::{
    ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray,
    builder::{Float32Builder, ListBuilder},
};
use elasticrun_data::{Batch, Dataset, Piece, Reader, ReaderOptions};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};

/// Numbers in a list or a byte string.
pub const WIDTH: usize = 16;

/// Writes a file of one batch, with `rows_per_group` rows in each row group.
pub fn write(path: &Path, batch: &RecordBatch, rows_per_group: usize) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows_per_group))
        .set_compression(parquet::basic::Compression::SNAPPY)
        .build();
    write_with(path, batch, properties);
}

pub fn write_with(path: &Path, batch: &RecordBatch, properties: WriterProperties) {
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Rows `from..to`: a number, and that number in a list, a byte string and a text.
pub fn rows(from: i64, to: i64) -> RecordBatch {
    let mut lists = ListBuilder::new(Float32Builder::new());
    for id in from..to {
        lists.values().append_slice(&tensor(id));
        lists.append(true);
    }
    let bytes: Vec<Vec<u8>> = (from..to)
        .map(|id| {
            tensor(id)
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        })
        .collect();
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(from..to))),
        ("list", Arc::new(lists.finish())),
        ("bytes", Arc::new(BinaryArray::from_iter_values(bytes))),
        (
            "text",
            Arc::new(StringArray::from_iter_values((from..to).map(text))),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The value of row `id` in `list` and in `bytes`.
pub fn tensor(id: i64) -> [f32; WIDTH] {
    std::array::from_fn(|column| (id * 100 + column as i64) as f32)
}

/// The value of row `id` in `text`, with a varying length.
pub fn text(id: i64) -> String {
    format!("row {id}")
}

/// Three files with 1,000, 1 and 500 rows, in row groups of 128.
pub fn three_files(directory: &Path) -> Arc<Dataset> {
    write(&directory.join("a.parquet"), &rows(0, 1000), 128);
    write(&directory.join("b.parquet"), &rows(1000, 1001), 128);
    write(&directory.join("c.parquet"), &rows(1001, 1501), 128);
    Arc::new(Dataset::open_local([directory]).unwrap())
}

/// A piece for each row group.
pub fn all(dataset: &Dataset) -> Vec<Piece> {
    (0..)
        .zip(dataset.groups())
        .map(|(group, known)| Piece {
            group,
            lo: 0,
            hi: known.rows,
        })
        .collect()
}

/// A reader of all of a data set.
pub fn reader(dataset: &Arc<Dataset>, options: ReaderOptions) -> Reader {
    let mut reader = Reader::new(dataset.clone(), options).unwrap();
    reader.assign(0, all(dataset)).unwrap();
    reader
}

/// The column `id` of a batch.
pub fn ids(batch: &Batch) -> Vec<i64> {
    let column = batch.column("id").unwrap();
    let ids: &Int64Array = column.array.as_any().downcast_ref().unwrap();
    ids.values().to_vec()
}

/// All batches of a reader.
pub fn drain(reader: &mut Reader, rows: usize) -> Vec<Batch> {
    std::iter::from_fn(|| reader.next_batch(rows).unwrap()).collect()
}

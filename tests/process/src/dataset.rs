//! The data set of a run: one Parquet file with a column of row numbers.

use std::{fs::File, path::Path, sync::Arc};

use arrow_array::{RecordBatch, UInt64Array};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};

/// File name in the control directory.
pub(crate) const NAME: &str = "rows.parquet";

/// Rows of a row group.
const GROUP: usize = 40;

/// Writes a data set of `rows` rows.
pub(crate) fn write(path: &Path, rows: u64) {
    let numbers = Arc::new(UInt64Array::from_iter_values(0..rows));
    let batch = RecordBatch::try_from_iter([("row", numbers as _)]).expect("one column");
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP))
        .build();
    let file = File::create(path).expect("the data set can be written");
    let mut writer =
        ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("rows can be written");
    writer.close().expect("the footer can be written");
}

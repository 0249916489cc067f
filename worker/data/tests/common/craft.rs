//! Files whose pages and footers say what no writer says.

use std::{fs, path::Path};

use arrow_array::RecordBatch;
use bytes::Bytes;
use parquet::{
    arrow::ArrowWriter,
    basic::Compression,
    file::{
        metadata::{
            ColumnChunkMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter,
            RowGroupMetaDataBuilder,
        },
        properties::{EnabledStatistics, WriterProperties},
    },
};

/// Makes the pages of a chunk, from those that are written.
pub type Pages = fn(&[u8]) -> Vec<u8>;

/// Changes what the footer says about a column.
pub type Change = fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder;

/// Changes to a file of one row group. The same for all columns.
#[derive(Clone, Copy, Default)]
pub struct Craft {
    /// Compression of the pages as they are written.
    pub written: Option<Compression>,
    /// Number of rows that the footer says.
    pub rows: Option<i64>,
    pub pages: Option<Pages>,
    /// Bytes of an offset index.
    pub offset_index: Option<fn() -> Vec<u8>>,
    pub column: Option<Change>,
}

impl Craft {
    /// Writes the batch to a file with plain pages, one for each column, and makes the changes.
    pub fn write(self, path: &Path, batch: &RecordBatch) {
        let properties = WriterProperties::builder()
            .set_compression(self.written.unwrap_or(Compression::UNCOMPRESSED))
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true)
            .build();
        let mut whole = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut whole, batch.schema(), Some(properties)).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
        let whole = Bytes::from(whole);
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&whole)
            .unwrap();
        let mut file = b"PAR1".to_vec();
        let mut columns = Vec::new();
        for chunk in metadata.row_group(0).columns() {
            let (start, length) = chunk.byte_range();
            let pages = &whole[start as usize..(start + length) as usize];
            let pages = self
                .pages
                .map_or_else(|| pages.to_vec(), |pages_of| pages_of(pages));
            let mut column = chunk
                .clone()
                .into_builder()
                .set_data_page_offset(file.len() as i64)
                .set_total_compressed_size(pages.len() as i64);
            file.extend(pages);
            if let Some(index) = self.offset_index {
                let index = index();
                column = column
                    .set_offset_index_offset(Some(file.len() as i64))
                    .set_offset_index_length(Some(index.len() as i32));
                file.extend(index);
            }
            if let Some(change) = self.column {
                column = change(column);
            }
            columns.push(column.build().unwrap());
        }
        let group: RowGroupMetaDataBuilder = metadata.row_group(0).clone().into_builder();
        let rows = self.rows.unwrap_or(metadata.row_group(0).num_rows());
        let group = group.set_column_metadata(columns).set_num_rows(rows);
        let metadata = metadata
            .into_builder()
            .set_row_groups(vec![group.build().unwrap()])
            .build();
        ParquetMetaDataWriter::new(&mut file, &metadata)
            .finish()
            .unwrap();
        fs::write(path, file).unwrap();
    }
}

/// Writes a file without rows, with these bytes as its footer.
pub fn write_footer(path: &Path, footer: &[u8]) {
    let length = (footer.len() as u32).to_le_bytes();
    fs::write(path, [b"PAR1", footer, &length, b"PAR1"].concat()).unwrap();
}

/// A number in the compact protocol of Thrift.
fn number(value: i64) -> Vec<u8> {
    let mut rest = (value << 1 ^ value >> 63) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// A data page of version 1 whose header says `values` and `uncompressed`.
pub fn data_page(values: i64, encoding: i64, uncompressed: i64, content: &[u8]) -> Vec<u8> {
    let mut page = vec![0x15, 0x00];
    for size in [uncompressed, content.len() as i64] {
        page.push(0x15);
        page.extend(number(size));
    }
    page.push(0x2c);
    // The last two are the encodings of the levels: runs.
    for field in [values, encoding, 3, 3] {
        page.push(0x15);
        page.extend(number(field));
    }
    page.extend([0, 0]);
    page.extend(content);
    page
}

/// A dictionary page of `values` plain values.
pub fn dictionary_page(values: i64, content: &[u8]) -> Vec<u8> {
    let mut page = vec![0x15, 0x04];
    for _ in 0..2 {
        page.push(0x15);
        page.extend(number(content.len() as i64));
    }
    page.push(0x4c);
    for field in [values, 0] {
        page.push(0x15);
        page.extend(number(field));
    }
    page.extend([0, 0]);
    page.extend(content);
    page
}

/// A footer with a schema of `elements`, and without rows.
pub fn footer(count: u32, elements: &[u8]) -> Vec<u8> {
    let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
    let mut rest = count;
    while rest >= 0x80 {
        footer.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    footer.push(rest as u8);
    footer.extend(elements);
    footer.extend([0x16, 0, 0x19, 0x0c, 0]);
    footer
}

/// An element of a schema: a group with `children` children.
pub fn group(children: i64) -> Vec<u8> {
    // Required, named "g".
    [
        &[0x35, 0x00, 0x18, 1, b'g', 0x15][..],
        &number(children),
        &[0],
    ]
    .concat()
}

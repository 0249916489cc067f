//! Any bytes as the pages of a column.

use std::sync::Arc;

use arrow_schema::Field;
use bytes::Bytes;
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    basic::{Compression, ZstdLevel},
    file::metadata::{ColumnChunkMetaData, FileMetaData, ParquetMetaData, RowGroupMetaData},
    schema::{parser::parse_message_type, types::SchemaDescriptor},
};

use super::{
    bytes::GroupBytes,
    column::{ByPages, GroupColumn},
};
use crate::{buffers::BufferPool, caught_panic, error::Result};

/// The columns: those of the page path, and others.
const SCHEMAS: [[&str; 8]; 2] = [
    [
        "message m { required binary x; }",
        "message m { optional binary x; }",
        "message m { required group x (LIST) { repeated group list { required float element; } } }",
        "message m { optional group x (LIST) { repeated group list { optional double element; } } }",
        "message m { required int32 x; }",
        "message m { optional int64 x; }",
        "message m { optional binary x (STRING); }",
        "message m { required fixed_len_byte_array(7) x; }",
    ],
    [
        "message m { required group x (LIST) { repeated group list { optional int32 element; } } }",
        "message m { optional group x (LIST) { repeated group list { required int64 element; } } }",
        "message m { optional group x (LIST) { repeated group list { optional int32 element; } } }",
        "message m { required group x (LIST) { repeated group list { required double element; } } }",
        "message m { repeated float x; }",
        "message m { optional group x (LIST) { repeated int64 element; } }",
        "message m { required binary x (STRING); }",
        "message m { optional binary x (JSON); }",
    ],
];

const CODECS: [fn() -> Compression; 4] = [
    || Compression::UNCOMPRESSED,
    || Compression::SNAPPY,
    || Compression::ZSTD(ZstdLevel::default()),
    || Compression::LZ4_RAW,
];

/// Bytes before the pages: schema and codec, rows, values, uncompressed bytes.
const HEAD: usize = 8;

/// More memory than that is not asked for here.
const MAX_NEEDED: u64 = 64 << 20;

/// Decodes pages by the page path and with Arrow's reader. The first bytes are the schema and the codec, then come the
/// numbers of rows and values of the footer in two bytes, and of uncompressed bytes in three. Gives whether the pages
/// hold the rows.
///
/// # Panics
/// If both take the pages, and give different values.
pub fn check_any_pages(input: &[u8]) -> bool {
    let Some((head, pages)) = input.split_first_chunk::<HEAD>() else {
        return false;
    };
    let [
        kind,
        rows_low,
        rows_high,
        values_low,
        values_high,
        size @ ..,
    ] = *head;
    let rows = u16::from_le_bytes([rows_low, rows_high]);
    let values = u16::from_le_bytes([values_low, values_high]);
    let size = u32::from_le_bytes([size[0], size[1], size[2], 0]);
    let metadata = metadata(kind, rows, values, size, pages.len());
    let Ok(metadata) = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
    else {
        return false;
    };
    let field = metadata.schema().field(0).clone();
    let column = GroupColumn {
        metadata: &metadata,
        group: 0,
        column: 0,
        field: &field,
    };
    check(
        &column,
        &GroupBytes::from_memory(Bytes::copy_from_slice(pages)),
        &field,
    )
}

fn check(column: &GroupColumn<'_>, bytes: &GroupBytes, field: &Field) -> bool {
    let by_pages = column.by_pages(bytes, &BufferPool::default());
    let arrow = match column.needed(bytes) {
        Ok((needed, _)) if needed > MAX_NEEDED => return false,
        Ok(_) => caught_panic::catch(|| column.with_arrow(bytes, None)),
        Err(error) => Ok(Err(error)),
    };
    let arrow = arrow.ok().and_then(Result::ok);
    if let (Ok((ByPages::Decoded(by_pages), _)), Some(arrow)) = (&by_pages, &arrow) {
        let by_pages = by_pages.array(field.data_type());
        assert_eq!(by_pages.to_data(), arrow.to_data(), "other values");
    }
    arrow.is_some()
}

/// The metadata of a file that only has these pages.
fn metadata(kind: u8, rows: u16, values: u16, size: u32, length: usize) -> ParquetMetaData {
    let kind = usize::from(kind);
    let schemas = &SCHEMAS[kind / (8 * CODECS.len()) % SCHEMAS.len()];
    let schema = schemas[kind % 8];
    let codec = CODECS[kind / 8 % CODECS.len()]();
    let schema = parse_message_type(schema).expect("a constant");
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
    let chunk = ColumnChunkMetaData::builder(schema.column(0))
        .set_compression(codec)
        .set_num_values(values.into())
        .set_data_page_offset(0)
        .set_total_compressed_size(length as i64)
        .set_total_uncompressed_size(size.into())
        .build()
        .expect("no field is missing");
    let group = RowGroupMetaData::builder(schema.clone())
        .set_num_rows(rows.into())
        .set_total_byte_size(size.into())
        .set_column_metadata(vec![chunk])
        .build()
        .expect("one chunk for one leaf");
    let file = FileMetaData::new(1, rows.into(), None, None, schema, None);
    ParquetMetaData::new(file, vec![group])
}

//! Which columns have a page path of their own. Arrow's reader decodes all others.
//!
//! | rows | types | encodings of data pages |
//! |---|---|---|
//! | lists, also missing or empty ones | (large) lists of int32, int64, uint32, uint64, float, double, with and without null elements | plain, dictionary, delta, byte stream split |
//! | byte strings and strings, also missing ones | (large) binary, (large) strings | plain, dictionary, delta length, delta |
//! | tensors: rows of one size, none is missing | those lists, fixed-size lists of those numbers, (large) binary | plain, dictionary |
//!
//! Codecs: none, snappy, zstd, brotli. Levels are runs. Not covered: numbers outside of lists, other lists, nested lists,
//! structures, maps, views, dictionary arrays, gzip, LZ4, packed levels of old writers, and chunks of 4 GiB and more. What turns
//! out to be damaged is left to Arrow's reader as well, which says why.

use arrow_schema::{DataType, Field};
use parquet::{
    basic::{ConvertedType, Type as Physical},
    file::metadata::ColumnChunkMetaData,
    schema::types::SchemaDescriptor,
};

/// The kind of values of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Lists of numbers of `number` bytes.
    Lists { number: usize, is_integer: bool },
    /// Byte strings. Text is valid UTF-8.
    Bytes { is_text: bool },
}

/// Which of the levels mean that something is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Optional {
    pub(super) row: bool,
    /// An element of a list.
    pub(super) element: bool,
}

/// A leaf column that may take the page path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) values: Values,
    pub(super) definition: i16,
    pub(super) rows: usize,
    /// Whether rows of one size are a tensor.
    pub(super) may_be_tensor: bool,
    /// `None` if rows of several sizes, or missing ones, are left to Arrow's reader.
    pub(super) varying: Option<Optional>,
}

/// Numbers of encodings in parquet.thrift.
pub(super) const PLAIN: i32 = 0;
pub(super) const PLAIN_DICTIONARY: i32 = 2;
pub(super) const DELTA_BINARY_PACKED: i32 = 5;
pub(super) const DELTA_LENGTH_BYTE_ARRAY: i32 = 6;
pub(super) const DELTA_BYTE_ARRAY: i32 = 7;
pub(super) const RLE_DICTIONARY: i32 = 8;
pub(super) const BYTE_STREAM_SPLIT: i32 = 9;

/// Each plain byte string is preceded by its length in four bytes.
pub(super) const PREFIX: usize = 4;

impl Leaf {
    /// The leaf of a top-level column, of a row group with `rows` rows. `None` if Arrow's reader decodes the column.
    pub(super) fn new(
        field: &Field,
        schema: &SchemaDescriptor,
        number: usize,
        chunk: &ColumnChunkMetaData,
        rows: usize,
    ) -> Option<Self> {
        use DataType::{
            Binary, FixedSizeList, Float32, Float64, Int32, Int64, LargeBinary, LargeList,
            LargeUtf8, List, UInt32, UInt64, Utf8,
        };
        let leaf = schema.column(number);
        let optional = |is_list: bool| {
            let row = schema.get_column_root(number).is_optional();
            let element = is_list && leaf.self_type().is_optional();
            let levels = i16::from(row) + i16::from(is_list) + i16::from(element);
            let is_small = chunk.uncompressed_size() < i64::from(u32::MAX);
            (levels == leaf.max_def_level() && row == field.is_nullable() && is_small)
                .then_some(Optional { row, element })
        };
        let (values, may_be_tensor, varying) = match field.data_type() {
            kind @ (List(inner) | LargeList(inner) | FixedSizeList(inner, _))
                if leaf.max_rep_level() == 1 =>
            {
                let (number, is_integer) = match (inner.data_type(), leaf.physical_type()) {
                    (Int32 | UInt32, Physical::INT32) => (4, true),
                    (Int64 | UInt64, Physical::INT64) => (8, true),
                    (Float32, Physical::FLOAT) => (4, false),
                    (Float64, Physical::DOUBLE) => (8, false),
                    _ => return None,
                };
                let varying = match kind {
                    FixedSizeList(..) => None,
                    _ => optional(true).filter(|optional| optional.element == inner.is_nullable()),
                };
                (Values::Lists { number, is_integer }, true, varying)
            }
            kind @ (Binary | LargeBinary | Utf8 | LargeUtf8)
                if leaf.max_rep_level() == 0 && leaf.physical_type() == Physical::BYTE_ARRAY =>
            {
                let is_binary = matches!(kind, Binary | LargeBinary);
                let is_text = !is_binary || leaf.converted_type() == ConvertedType::UTF8;
                (Values::Bytes { is_text }, is_binary, optional(false))
            }
            _ => return None,
        };
        (may_be_tensor || varying.is_some()).then_some(Self {
            values,
            definition: leaf.max_def_level(),
            rows,
            may_be_tensor,
            varying,
        })
    }

    pub(super) fn is_list(self) -> bool {
        matches!(self.values, Values::Lists { .. })
    }

    /// Whether data pages of this encoding are decoded here, if the rows vary.
    pub(super) fn has_decoder(self, encoding: i32) -> bool {
        match (self.values, encoding) {
            (_, PLAIN | PLAIN_DICTIONARY | RLE_DICTIONARY) => true,
            (Values::Lists { is_integer, .. }, DELTA_BINARY_PACKED) => is_integer,
            (Values::Lists { .. }, BYTE_STREAM_SPLIT) => true,
            (Values::Bytes { .. }, DELTA_LENGTH_BYTE_ARRAY | DELTA_BYTE_ARRAY) => true,
            _ => false,
        }
    }
}

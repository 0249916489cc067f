//! What the headers of pages say, before Arrow's reader believes them.
//!
//! Arrow's reader reserves memory by the numbers of page headers and of the footer, and ends the process if it gets
//! none. The headers are in memory before it begins, so they are read first. The cost is one header a page.
//!
//! Not promised: a limit for pages whose dictionary entries are long and used often.

use parquet::{basic::Type as Physical, file::metadata::ColumnChunkMetaData};

use super::{chunk_source::ChunkSource, header::PageType};
use crate::{
    error::{Error, Problem, Result},
    thrift::{PAGE_HEADER, is_sound},
};

/// The sums over pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageWalk {
    /// Values of data pages, including nulls. A row has at least one.
    values: u64,
    /// Bytes of all pages after decompression.
    pub(super) uncompressed: u64,
    /// Bytes of the largest page after decompression.
    largest: u64,
}

impl PageWalk {
    /// Adds pages that follow each other.
    ///
    /// # Errors
    /// If a header is invalid, or if a page ends after the source.
    pub(super) fn add(&mut self, source: &mut ChunkSource<'_>) -> Result<()> {
        let mut pos = 0;
        while pos < source.length() {
            let (header, length) = source.header(pos)?;
            let bytes = source.get(pos, length).map_err(Problem::from)?;
            if !is_sound(&bytes[..length], PAGE_HEADER) {
                return Err(Error::corrupt("a page header is invalid"));
            }
            pos += length + header.compressed;
            if pos > source.length() {
                return Err(Error::corrupt("a page reaches beyond the end of its chunk"));
            }
            let size = header.uncompressed as u64;
            self.uncompressed = self.uncompressed.saturating_add(size);
            self.largest = self.largest.max(size);
            if let PageType::Data | PageType::DataV2 = header.page_type {
                self.values = self.values.saturating_add(header.values as u64);
            }
        }
        Ok(())
    }

    /// The bytes that decoding `rows` rows from the pages needs.
    ///
    /// # Errors
    /// If the pages hold fewer values than rows, or more than the footer says.
    pub(super) fn needed(&self, chunk: &ColumnChunkMetaData, rows: u64) -> Result<u64> {
        if self.values < rows {
            let values = self.values;
            let why = format!("its pages hold {values} values, the footer says {rows} rows");
            return Err(Error::corrupt(why));
        }
        if i128::from(self.values) > i128::from(chunk.num_values()) {
            return Err(Error::corrupt(
                "its pages hold more values than its footer says",
            ));
        }
        let values = match chunk.column_type() {
            Physical::BOOLEAN => self.values.div_ceil(8),
            Physical::INT32 | Physical::FLOAT => self.values.saturating_mul(4),
            Physical::INT64 | Physical::DOUBLE => self.values.saturating_mul(8),
            Physical::INT96 => self.values.saturating_mul(12),
            Physical::FIXED_LEN_BYTE_ARRAY => {
                let length = chunk.column_descr().type_length().max(0) as u64;
                self.values.saturating_mul(length)
            }
            // Each value has an offset besides.
            Physical::BYTE_ARRAY => {
                (self.values.saturating_mul(4)).saturating_add(self.uncompressed)
            }
        };
        Ok(values.saturating_add(self.largest))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use parquet::{
        basic::Type as Physical,
        schema::types::{ColumnDescriptor, ColumnPath, Type},
    };

    use super::*;

    /// A page of version 1 with `values` values, `content` bytes and 300 bytes after decompression.
    fn page(values: u8, content: usize) -> Vec<u8> {
        let header = [
            0x15,
            0x00,
            0x15,
            0xd8,
            0x04,
            0x15,
            2 * content as u8,
            0x2c,
            0x15,
            2 * values,
            0x15,
            0,
            0x15,
            0,
            0x15,
            0,
            0,
            0,
        ];
        [&header[..], &vec![0; content]].concat()
    }

    fn chunk(values: i64) -> ColumnChunkMetaData {
        let column = Type::primitive_type_builder("x", Physical::INT32)
            .build()
            .unwrap();
        let column = ColumnDescriptor::new(Arc::new(column), 0, 0, ColumnPath::from("x"));
        let builder = ColumnChunkMetaData::builder(Arc::new(column));
        builder.set_num_values(values).build().unwrap()
    }

    fn walk(bytes: &[u8]) -> Result<PageWalk> {
        let mut walk = PageWalk::default();
        walk.add(&mut ChunkSource::Memory(Bytes::copy_from_slice(bytes)))?;
        Ok(walk)
    }

    #[test]
    fn pages_are_summed_up() {
        let bytes = [page(7, 20), page(3, 0)].concat();
        let pages = walk(&bytes).unwrap();
        let (values, uncompressed, largest) = (10, 600, 300);
        let expected = PageWalk {
            values,
            uncompressed,
            largest,
        };
        assert_eq!(pages, expected);
        assert_eq!(pages.needed(&chunk(10), 10).unwrap(), 10 * 4 + 300);
        assert!(walk(&bytes[..bytes.len() - 1]).is_err(), "cut");
        assert!(walk(&page(7, 20)[..30]).is_err(), "content is cut");
    }

    #[test]
    fn what_pages_and_footer_say_must_agree() {
        let pages = walk(&page(7, 20)).unwrap();
        let why = |rows, values| pages.needed(&chunk(values), rows).unwrap_err().to_string();
        assert!(why(1 << 31, 1 << 31).ends_with("hold 7 values, the footer says 2147483648 rows"));
        assert!(why(7, 6).ends_with("more values than its footer says"));
        assert!(why(7, -1).ends_with("more values than its footer says"));
    }
}

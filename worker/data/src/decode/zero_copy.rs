//! Byte strings that stay where they were read: of a chunk that Snappy could not make smaller, as tensors of noise.
//!
//! Its pages hold nearly all rows as they are, if rows are short beside Snappy's runs of 64 KiB. So the chunk as it was read is
//! the column, with a table of places. Whatever is not of this form is left to the other ways, so this one may refuse at any
//! moment and nothing depends on it.

use arrow_buffer::Buffer;
use bytes::Bytes;
use parquet::{basic::Compression, file::metadata::ColumnChunkMetaData};

use super::{
    fixed_width_fast_path::{Leaf, PLAIN, Values},
    header::{self, PageType},
    levels::{all_defined, split_levels},
    snappy::{COPIED, Content},
};
use crate::column::{Block, Fixed, Places};

/// A longer row is cut by the end of a run so often that decompressing costs less.
const LONG: u64 = (64 << 10) / COPIED as u64;

/// Whether it is likely that rows of a chunk can stay in place: less than a 64th of it was won, and they are not long.
pub(super) fn is_likely(leaf: Leaf, chunk: &ColumnChunkMetaData) -> bool {
    let (Ok(packed), Ok(plain)) = (
        u64::try_from(chunk.compressed_size()),
        u64::try_from(chunk.uncompressed_size()),
    ) else {
        return false;
    };
    leaf.values == Values::Bytes
        && chunk.compression() == Compression::SNAPPY
        && packed >= plain - plain / 64
        && plain / (leaf.rows as u64).max(1) <= LONG
}

/// The column, if its rows are of one size and without nulls. See the module.
pub(super) fn decode(leaf: Leaf, chunk: &ColumnChunkMetaData, bytes: &Bytes) -> Option<Fixed> {
    let mut blocks = Vec::new();
    let (mut at, mut rows) = (0, 0);
    let mut left = usize::try_from(chunk.uncompressed_size()).ok()?;
    let mut prefix = None;
    while at < bytes.len() {
        let (header, length) = header::read(&bytes[at..])?;
        at += length;
        let end = at.checked_add(header.compressed)?;
        let page = bytes.get(at..end)?;
        if header.crc.is_some_and(|crc| crc != crc32fast::hash(page)) {
            return None;
        }
        let levels = match header.page_type {
            PageType::Data => None,
            PageType::DataV2 => Some((header.repetition_bytes, header.definition_bytes)),
            _ => return None,
        };
        if header.encoding != PLAIN {
            return None;
        }
        // More than the footer says is damage.
        left = left.checked_sub(header.uncompressed)?;
        let plain = match levels {
            Some((repetition, definition)) if header.is_compressed => repetition + definition,
            Some(_) => page.len(),
            None => 0,
        };
        let content = Content::new(bytes, at..end, plain, header.uncompressed)?;
        let levels = split_levels(levels, content.head(), false, leaf.definition > 0)?;
        all_defined(levels.definition, leaf.definition, header.values)?;
        let start = levels.length;
        let prefix = match prefix {
            Some(prefix) => prefix,
            None => *prefix.insert(content.prefix(0, start)?),
        };
        let (places, side) = content.rows(start, header.values, prefix)?;
        if header.values > 0 {
            blocks.push(Block {
                first: rows,
                data: Buffer::from(bytes.clone()),
                places: Places::Table {
                    places,
                    side: Buffer::from_vec(side),
                },
            });
        }
        rows += header.values;
        at = end;
    }
    let size = u32::from_le_bytes(prefix?) as usize;
    (rows == leaf.rows).then(|| Fixed::new(size, rows, blocks))
}

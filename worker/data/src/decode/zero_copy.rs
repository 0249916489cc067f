//! Zero-copy decoding of byte strings in chunks that Snappy could not reduce, such as tensors of noise.
//!
//! The pages of such a chunk hold nearly all rows verbatim, if rows are short compared to Snappy's runs of 64 KiB. So
//! the chunk as it was read is the column, with a table of offsets. All other data is left to the other paths, so this
//! one may return `None` at any time.

use arrow_buffer::Buffer;
use bytes::Bytes;
use parquet::{basic::Compression, file::metadata::ColumnChunkMetaData};

use super::{
    fixed_width_fast_path::{Leaf, PLAIN, Values},
    header::{self, PageType, RLE},
    levels::{all_defined, split_levels},
    snappy::{MAX_COPIED_DIVISOR, SnappyContent},
};
use crate::column::{Block, FixedWidth, RowOffsets};

/// Longer rows are split by the ends of runs so often that decompressing costs less.
const MAX_ROW_BYTES: u64 = (64 << 10) / MAX_COPIED_DIVISOR as u64;

/// Whether rows of a chunk are probably usable in place: compression saved at most 1/64, and rows are short.
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
        && plain / (leaf.rows as u64).max(1) <= MAX_ROW_BYTES
}

/// Decodes the column, if its rows have one size and no nulls.
pub(super) fn decode(leaf: Leaf, chunk: &ColumnChunkMetaData, bytes: &Bytes) -> Option<FixedWidth> {
    let mut blocks = Vec::new();
    let (mut pos, mut rows) = (0, 0);
    let mut left = usize::try_from(chunk.uncompressed_size()).ok()?;
    let mut prefix = None;
    while pos < bytes.len() {
        let (header, length) = header::read(&bytes[pos..])?;
        pos += length;
        let end = pos.checked_add(header.compressed)?;
        let page = bytes.get(pos..end)?;
        if header.crc.is_some_and(|crc| crc != crc32fast::hash(page)) {
            return None;
        }
        let levels = match header.page_type {
            PageType::Data => None,
            PageType::DataV2 => Some((header.repetition_bytes, header.definition_bytes)),
            _ => return None,
        };
        if header.encoding != PLAIN || (leaf.definition > 0 && header.definition_encoding != RLE) {
            return None;
        }
        // More bytes than the footer says means damage.
        left = left.checked_sub(header.uncompressed)?;
        let plain = match levels {
            Some((repetition, definition)) if header.is_compressed => repetition + definition,
            Some(_) => page.len(),
            None => 0,
        };
        let content = SnappyContent::new(bytes, pos..end, plain, header.uncompressed)?;
        let levels = split_levels(levels, content.head(), false, leaf.definition > 0)?;
        all_defined(levels.definition, leaf.definition, header.values)?;
        let start = levels.length;
        let prefix = match prefix {
            Some(prefix) => prefix,
            None => *prefix.insert(content.prefix(0, start)?),
        };
        let (offsets, extra) = content.rows(start, header.values, prefix)?;
        if header.values > 0 {
            blocks.push(Block {
                first: rows,
                data: Buffer::from(bytes.clone()),
                offsets: RowOffsets::Table {
                    offsets,
                    extra: Buffer::from_vec(extra),
                },
            });
        }
        rows += header.values;
        pos = end;
    }
    let size = u32::from_le_bytes(prefix?) as usize;
    (rows == leaf.rows).then(|| FixedWidth::new(size, rows, blocks))
}

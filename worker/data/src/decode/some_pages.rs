//! Some rows of a column, from the pages that have them.
//!
//! Pages that an offset index names have whole rows. They are decompressed, and the rows that are not wanted are left out of the
//! table of rows: no value is copied for that.

use std::{collections::HashSet, ops::Range};

use arrow_schema::Field;
use bytes::Bytes;
use parquet::{
    basic::Compression,
    file::{metadata::ColumnChunkMetaData, page_index::offset_index::PageLocation},
};

use super::{
    bytes::GroupBytes,
    chunk_source::ChunkSource,
    column::{ByPages, Cost},
    column_chunk::ColumnChunk,
    page_path::Leaf,
    page_survey::PageSurvey,
    variable_width,
};
use crate::{
    buffers::BufferPool,
    column::{ColumnData, DecodedColumn},
    error::{Error, Result},
    row_ranges::RowRanges,
};

/// Pages of a chunk that were read, and the rows that are wanted of them.
pub(super) struct SomePages<'a> {
    pub(super) bytes: &'a GroupBytes,
    /// Where the pages are in the file, the dictionary first.
    pub(super) ranges: &'a [Range<u64>],
    /// The places of all pages of the chunk.
    pub(super) locations: &'a [PageLocation],
    /// Bytes of the pages after decompression.
    pub(super) uncompressed: usize,
    pub(super) wanted: &'a RowRanges,
}

impl SomePages<'_> {
    /// Decodes the wanted rows of a leaf whose chunk has `leaf.rows` rows.
    ///
    /// # Errors
    /// If a page is damaged, or if there is no memory.
    pub(super) fn decode(
        &self,
        leaf: Leaf,
        chunk: &ColumnChunkMetaData,
        field: &Field,
        buffers: &BufferPool,
    ) -> Result<(ByPages, Cost)> {
        let mut cost = Cost::default();
        if leaf.varying.is_none() {
            return Ok((ByPages::Unsupported, cost));
        }
        let Some(rows) = self.rows_of_pages(leaf.rows) else {
            return Ok((ByPages::Refused, cost));
        };
        let held = RowRanges::new(rows.iter().cloned());
        let Some(kept) = within(&held, self.wanted) else {
            return Ok((ByPages::Refused, cost));
        };
        let leaf = Leaf {
            rows: held.length() as usize,
            may_be_tensor: false,
            ..leaf
        };
        let is_compressed = chunk.compression() != Compression::UNCOMPRESSED;
        let mut survey = PageSurvey::new(leaf);
        let mut source = ChunkSource::Memory(self.joined(buffers)?);
        let pages = ColumnChunk::read(
            chunk,
            &mut source,
            self.uncompressed,
            buffers,
            |page_type, page, content| {
                cost.decompressed += if is_compressed {
                    content.len() as u64
                } else {
                    0
                };
                survey.add(page_type, page, content)
            },
        )?;
        let Some(pages) = pages else {
            return Ok(match survey.is_refused() {
                true => (ByPages::Refused, cost),
                false => (ByPages::Unsupported, cost),
            });
        };
        let counts: Vec<usize> = (rows.iter())
            .map(|rows| (rows.end - rows.start) as usize)
            .collect();
        let data_type = field.data_type();
        let decoded = variable_width::decode(leaf, data_type, &pages, Some(&counts), buffers)?;
        let decoded = match decoded {
            Some(ColumnData::VariableWidth(rows)) => Some(DecodedColumn::new(
                ColumnData::VariableWidth(rows.select(kept.into_iter())),
            )),
            Some(other) => DecodedColumn::new(other).select(&kept, data_type),
            None => None,
        };
        Ok((decoded.map_or(ByPages::Refused, ByPages::Decoded), cost))
    }

    /// The rows of each data page that was read. `None` if the index is not in order.
    fn rows_of_pages(&self, rows: usize) -> Option<Vec<Range<u32>>> {
        let end = i64::try_from(rows).ok()?;
        let read: HashSet<u64> = self.ranges.iter().map(|range| range.start).collect();
        let mut found = Vec::new();
        for (number, page) in self.locations.iter().enumerate() {
            let next = self.locations.get(number + 1);
            let next = next.map_or(end, |next| next.first_row_index);
            if page.first_row_index >= next || next > end {
                return None;
            }
            let offset = u64::try_from(page.offset).ok()?;
            if read.contains(&offset) {
                let first = u32::try_from(page.first_row_index).ok()?;
                found.push(first..u32::try_from(next).ok()?);
            }
        }
        Some(found)
    }

    /// The bytes of all pages, one after the other.
    fn joined(&self, buffers: &BufferPool) -> Result<Bytes> {
        let get = |range: &Range<u64>| {
            let bytes = self.bytes.get(range.clone());
            bytes.map_err(|error| Error::corrupt(error.to_string()))
        };
        let follow = self
            .ranges
            .windows(2)
            .all(|pair| pair[0].end == pair[1].start);
        if let (true, Some(first), Some(last)) = (follow, self.ranges.first(), self.ranges.last())
            && let Ok(bytes) = get(&(first.start..last.end))
        {
            return Ok(bytes);
        }
        let parts = self.ranges.iter().map(get).collect::<Result<Vec<_>>>()?;
        let mut joined = buffers.take(parts.iter().map(Bytes::len).sum())?;
        let mut rest = &mut joined[..];
        for part in parts {
            let (target, after) = rest.split_at_mut(part.len());
            target.copy_from_slice(&part);
            rest = after;
        }
        Ok(buffers.share(joined))
    }
}

/// The places of the wanted rows among those that are held. `None` if one is not held.
fn within(held: &RowRanges, wanted: &RowRanges) -> Option<Vec<Range<usize>>> {
    let place = |range: &Range<u32>| {
        let after = (held.ranges()).partition_point(|held| held.start <= range.start);
        let around = held.ranges().get(after.checked_sub(1)?)?;
        let first = held.index_of(range.start) as usize;
        (range.end <= around.end).then(|| first..first + (range.end - range.start) as usize)
    };
    wanted.ranges().iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_rows_are_found_among_those_of_pages() {
        let held = RowRanges::new([10..20, 20..30, 50..60]);
        let within = |wanted: &[Range<u32>]| within(&held, &RowRanges::new(wanted.to_vec()));
        let within_one = |wanted: Range<u32>| within(std::slice::from_ref(&wanted));
        assert_eq!(within(&[12..22, 55..60]), Some(vec![2..12, 25..30]));
        assert_eq!(within_one(29..31), None);
        assert_eq!(within_one(0..1), None);
    }

    #[test]
    fn an_index_out_of_order_is_refused() {
        let location = |first_row_index| PageLocation {
            offset: 100 * first_row_index,
            compressed_page_size: 1,
            first_row_index,
        };
        let rows = |firsts: &[i64], read: &[u64], rows| {
            let locations: Vec<_> = firsts.iter().map(|first| location(*first)).collect();
            let ranges: Vec<_> = read
                .iter()
                .map(|first| 100 * first..100 * first + 1)
                .collect();
            SomePages {
                bytes: &GroupBytes::from_memory(Bytes::new()),
                ranges: &ranges,
                locations: &locations,
                uncompressed: 0,
                wanted: &RowRanges::new([]),
            }
            .rows_of_pages(rows)
        };
        assert_eq!(rows(&[0, 5, 9], &[0, 9], 12), Some(vec![0..5, 9..12]));
        assert_eq!(rows(&[0, 5, 5], &[0], 12), None);
        assert_eq!(rows(&[0, 5, 9], &[0], 9), None);
        assert_eq!(rows(&[-1, 5], &[], 9), None);
    }
}

//! Reads only the pages of a row group that are needed.
//!
//! Files may have an offset index and a column index near the footer: the location and the bounds of each page. With a
//! predicate, pages of its columns that cannot match are not read. Of the other columns, pages without a kept row are
//! not read. A row group is read as a whole if it fits into one read of the storage, or if most of its rows are
//! needed.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection},
    basic::Compression,
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::{ColumnChunkMetaData, ParquetMetaDataBuilder, page_index::PageIndexBuilder},
        page_index::{
            index_reader::{decode_column_index, decode_offset_index},
            offset_index::OffsetIndexMetaData,
        },
    },
};

use super::{
    Decoder, brotli, bytes::GroupBytes, chunk_source::ChunkSource, claims::check_memory,
    column::GroupColumn, column_paths::Path, page_walk::PageWalk, some_pages::SomePages, widened,
};
use crate::{
    column::DecodedColumn,
    dataset::{ColumnSource, Selection},
    error::{Error, Result},
    predicate::{ColumnPages, Filter, rows_that_may_hold},
    row_ranges::RowRanges,
    thrift::{self, COLUMN_INDEX, OFFSET_INDEX},
};

/// The offset indexes of some leaf columns, by index of the leaf.
type PageOffsets = BTreeMap<usize, OffsetIndexMetaData>;

/// Kept rows that are this close are read together, as the rows between them are probably in the same page.
const BRIDGE_ROWS: u32 = 64;

impl Decoder {
    /// The rows that the pages of the predicate's columns leave; `None` if reading the indexes does not pay.
    ///
    /// # Errors
    /// If the indexes cannot be read, or are damaged.
    pub(super) fn rows_by_pages(&self, filter: &Filter, group: u32) -> Result<Option<RowRanges>> {
        let row_group = &self.dataset.groups()[group as usize];
        let leaves = self.leaves(&filter.selection, group);
        let offsets = self.offsets(&leaves, group)?;
        let Some(offsets) = offsets.filter(|_| self.is_worth_it(&leaves)) else {
            return Ok(None);
        };
        let ranges: Option<Vec<Range<u64>>> = (leaves.iter())
            .map(|(_, chunk)| chunk.column_index_range())
            .collect();
        let Some(ranges) = ranges else {
            return Ok(None);
        };
        let bytes = self.read(group, ranges.clone())?;
        let metadata = &self.dataset.file_of(group).metadata;
        let (schema, file_schema) = (metadata.parquet_schema(), metadata.schema());
        let mut columns = Vec::new();
        for ((leaf, chunk), range) in leaves.iter().zip(ranges) {
            let descriptor = schema.column(*leaf);
            // Lists have no usable statistics, and nobody asks for those of other fields of a structure.
            let asked = filter.at(descriptor.path().parts());
            let (Some((name, operand)), 0) = (asked, descriptor.max_rep_level()) else {
                continue;
            };
            let field = file_schema.field_with_name(&operand.root).ok();
            let Some(data_type) = field.and_then(|field| operand.data_type(field.data_type()))
            else {
                continue;
            };
            let index = bytes
                .get(range)
                .and_then(|bytes| {
                    check_index(&bytes, COLUMN_INDEX)?;
                    decode_column_index(&bytes, chunk.column_type())
                })
                .map_err(|error| Error::corrupt(error.to_string()).in_column(&operand.root))?;
            let offsets = &offsets[leaf];
            columns.extend(ColumnPages::new(
                name,
                data_type,
                offsets,
                &index,
                row_group.rows,
            ));
        }
        Ok(Some(rows_that_may_hold(
            &filter.predicate,
            &columns,
            row_group.rows,
        )))
    }

    /// Decodes some rows of the columns of a selection. `None` if reading all rows is better: without an offset index,
    /// or if most rows are needed.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub(super) fn some_rows(
        &self,
        selection: &Selection,
        group: u32,
        rows: impl Iterator<Item = Range<u32>>,
    ) -> Result<Option<(Vec<DecodedColumn>, RowRanges)>> {
        let row_group = self.dataset.groups()[group as usize];
        let schema = self.dataset.file_of(group).metadata.parquet_schema();
        let wanted = RowRanges::bridging(rows, BRIDGE_ROWS);
        let leaves = self.leaves(selection, group);
        if wanted.length() > row_group.rows / 2 || !self.is_worth_it(&leaves) {
            return Ok(None);
        }
        let Some(offsets) = self.offsets(&leaves, group)? else {
            return Ok(None);
        };
        let ranges = wanted.ranges().iter();
        let ranges = ranges.map(|range| range.start as usize..range.end as usize);
        let rows = RowSelection::from_consecutive_ranges(ranges, row_group.rows as usize);
        let mut pages = Vec::new();
        let mut places = BTreeMap::new();
        for (leaf, chunk) in &leaves {
            let first = pages.len();
            let locations = offsets[leaf].page_locations();
            let (start, _) = chunk.byte_range();
            // The dictionary precedes the first page.
            if let Some(first) = locations
                .first()
                .and_then(|page| page.offset.try_into().ok())
                && start < first
            {
                pages.push(start..first);
            }
            pages.extend(rows.scan_ranges(locations));
            places.insert(*leaf, first..pages.len());
        }
        let bytes = self.read(group, pages.clone())?;
        let mut needed = 0_u64;
        let mut sizes = BTreeMap::new();
        for (leaf, chunk) in &leaves {
            let name = schema.get_column_root(*leaf).name();
            let (needs, size) =
                needed_for(chunk, &pages[places[leaf].clone()], &bytes, wanted.length())
                    .map_err(|error| error.in_column(name))?;
            needed = needed.saturating_add(needs);
            sizes.insert(*leaf, size);
        }
        check_memory(needed)?;
        let indexes = offsets.clone();
        let metadata = self.one_group(group, offsets)?;
        let columns = (selection.sources(row_group.file).iter())
            .zip(selection.schema.fields())
            .map(|(source, field)| match source {
                ColumnSource::Partition(value) => Ok(value.column(field, wanted.length() as usize)),
                ColumnSource::Column(column) => {
                    let column = GroupColumn {
                        metadata: &metadata,
                        group: 0,
                        column: *column,
                        field: metadata.schema().field(*column),
                    };
                    let some = |leaf: usize| SomePages {
                        bytes: &bytes,
                        ranges: &pages[places[&leaf].clone()],
                        locations: indexes[&leaf].page_locations(),
                        uncompressed: sizes[&leaf],
                        wanted: &wanted,
                    };
                    self.chosen(&column, some, &bytes, rows.clone())
                        .and_then(|decoded| widened(decoded, column.field, field))
                        .map_err(|error| error.in_column(field.name()))
                }
            })
            .collect::<Result<_>>()?;
        Ok(Some((columns, wanted)))
    }

    /// Some rows of a column: by its pages, or with Arrow's reader.
    fn chosen<'a>(
        &self,
        column: &GroupColumn<'_>,
        some: impl Fn(usize) -> SomePages<'a>,
        bytes: &GroupBytes,
        rows: RowSelection,
    ) -> Result<DecodedColumn> {
        if self.paths.get(column.field.name()) != Some(Path::Arrow)
            && let Some((number, leaf, chunk)) = column.leaf()
        {
            let (by_pages, cost) = some(number).decode(leaf, chunk, column.field, &self.buffers)?;
            if let Some(decoded) = self.decoded(column, by_pages, cost) {
                return Ok(decoded);
            }
        }
        let count = rows.row_count();
        let array = column.with_arrow(bytes, Some((rows, count)))?;
        Ok(DecodedColumn::from_array(array))
    }

    /// The leaf columns of a selection that are stored in the file.
    fn leaves(&self, selection: &Selection, group: u32) -> Vec<(usize, &ColumnChunkMetaData)> {
        let row_group = &self.dataset.groups()[group as usize];
        let metadata = &self.dataset.file_of(group).metadata;
        let columns = selection.columns(row_group.file);
        super::leaves(metadata, row_group.index as usize, &columns).collect()
    }

    /// Whether reading parts costs less than one read of everything.
    fn is_worth_it(&self, leaves: &[(usize, &ColumnChunkMetaData)]) -> bool {
        let bytes: u64 = leaves.iter().map(|(_, chunk)| chunk.byte_range().1).sum();
        bytes > self.dataset.storage().coalesce_gap()
    }

    /// The offset indexes of leaf columns; `None` if one is missing.
    fn offsets(
        &self,
        leaves: &[(usize, &ColumnChunkMetaData)],
        group: u32,
    ) -> Result<Option<PageOffsets>> {
        let ranges: Option<Vec<Range<u64>>> = (leaves.iter())
            .map(|(_, chunk)| chunk.offset_index_range())
            .collect();
        let Some(ranges) = ranges.filter(|ranges| !ranges.is_empty()) else {
            return Ok(None);
        };
        let bytes = self.read(group, ranges.clone())?;
        let offsets = leaves.iter().zip(ranges).map(|((leaf, _), range)| {
            let index = bytes.get(range).and_then(|bytes| {
                check_index(&bytes, OFFSET_INDEX)?;
                decode_offset_index(&bytes)
            });
            Ok((
                *leaf,
                index.map_err(|error| Error::corrupt(error.to_string()))?,
            ))
        });
        offsets.collect::<Result<_>>().map(Some)
    }

    /// The metadata of one row group, with the offsets of its pages.
    fn one_group(&self, group: u32, offsets: PageOffsets) -> Result<ArrowReaderMetadata> {
        let row_group = &self.dataset.groups()[group as usize];
        let metadata = self.dataset.file_of(group).metadata.metadata();
        let row_group = metadata.row_group(row_group.index as usize).clone();
        let mut index = PageIndexBuilder::new(1, row_group.num_columns());
        for (leaf, offsets) in offsets {
            index.put_offset_index(offsets, 0, leaf);
        }
        let metadata = ParquetMetaDataBuilder::new(metadata.file_metadata().clone())
            .add_row_group(row_group)
            .set_page_index(Some(Arc::new(index.build())))
            .build();
        ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
            .map_err(|error| Error::corrupt(error.to_string()))
    }

    fn read(&self, group: u32, ranges: Vec<Range<u64>>) -> Result<GroupBytes> {
        self.read_ranges(&self.dataset.file_of(group).info, ranges)
    }
}

/// Arrow's reader reserves memory by the numbers of an index before it finds that bytes are missing.
fn check_index(bytes: &[u8], structure: thrift::Structure) -> ParquetResult<()> {
    match thrift::is_sound(bytes, structure) {
        true => Ok(()),
        false => Err(ParquetError::General(
            "its page index is invalid".to_owned(),
        )),
    }
}

/// The bytes that decoding `rows` rows from some pages of a chunk needs, and those of the pages after decompression.
///
/// # Errors
/// If a page header is invalid, or if the pages disagree with the footer.
fn needed_for(
    chunk: &ColumnChunkMetaData,
    pages: &[Range<u64>],
    bytes: &GroupBytes,
    rows: u32,
) -> Result<(u64, usize)> {
    let mut walk = PageWalk::default();
    for page in pages {
        let page = bytes.get(page.clone());
        let page = page.map_err(|error| Error::corrupt(error.to_string()))?;
        let mut source = ChunkSource::Memory(page);
        walk.add(&mut source)?;
        if let Compression::BROTLI(_) = chunk.compression() {
            brotli::check_sizes(&mut source)?;
        }
    }
    let uncompressed = usize::try_from(walk.uncompressed).unwrap_or(usize::MAX);
    Ok((walk.needed(chunk, u64::from(rows))?, uncompressed))
}

//! Which pages of a row group are worth reading, and reading only these.
//!
//! Files may say of each page where it lies and between which bounds its values are (the offset index and the
//! column index, near the footer). With a predicate, the pages of its columns are left out that cannot hold a
//! row; of the other columns those pages that hold no row that it kept. Where the whole of a row group is no
//! more than one read of the storage, or most of its rows are wanted, it is read as a whole.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection},
    file::{
        metadata::{ColumnChunkMetaData, ParquetMetaDataBuilder, page_index::PageIndexBuilder},
        page_index::{
            index_reader::{decode_column_index, decode_offset_index},
            offset_index::OffsetIndexMetaData,
        },
    },
};

use super::{Decoder, bytes::GroupBytes, column::ColumnOfGroup};
use crate::{
    column::Decoded,
    dataset::{Selection, Source},
    error::{Error, Result},
    predicate::{ColumnPages, Filter, rows_that_may_hold},
    rows::SomeRows,
};

/// Where the pages of some leaf columns lie, by the number of the leaf.
type Places = BTreeMap<usize, OffsetIndexMetaData>;

/// Kept rows that are so close are read together: what is between them is likely in the same page.
const BRIDGED: u32 = 64;

impl Decoder {
    /// The rows that the pages of the predicate's columns leave; nothing if that is not worth asking.
    ///
    /// # Errors
    /// The indexes cannot be read, or are damaged.
    pub(super) fn rows_by_pages(&self, filter: &Filter, group: u32) -> Result<Option<SomeRows>> {
        let place = &self.dataset.groups()[group as usize];
        let leaves = self.leaves(&filter.selection, group);
        let places = self.places(&leaves, group)?;
        let Some(places) = places.filter(|_| self.is_worth_it(&leaves)) else {
            return Ok(None);
        };
        let ranges: Option<Vec<Range<u64>>> = (leaves.iter())
            .map(|(_, chunk)| chunk.column_index_range())
            .collect();
        let Some(ranges) = ranges else {
            return Ok(None);
        };
        let bytes = self.read(group, ranges.clone())?;
        let schema = self.dataset.file_of(group).metadata.parquet_schema();
        let mut columns = Vec::new();
        for ((leaf, chunk), range) in leaves.iter().zip(ranges) {
            let descriptor = schema.column(*leaf);
            let name = schema.get_column_root(*leaf).name();
            // Of a list or a structure nothing is known.
            let Ok(field) = filter.selection.schema.field_with_name(name) else {
                continue;
            };
            if descriptor.max_rep_level() > 0 || schema.get_column_root(*leaf).is_group() {
                continue;
            }
            let index = bytes
                .get(range)
                .and_then(|bytes| decode_column_index(&bytes, chunk.column_type()))
                .map_err(|error| Error::corrupt(error.to_string()).in_column(name))?;
            let places = &places[leaf];
            columns.extend(ColumnPages::new(
                name,
                field.data_type(),
                places,
                &index,
                place.rows,
            ));
        }
        Ok(Some(rows_that_may_hold(
            &filter.predicate,
            &columns,
            place.rows,
        )))
    }

    /// Some rows of the columns of a selection, or nothing if all are better read: without an offset index, or
    /// if most rows are wanted.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub(super) fn some_rows(
        &self,
        selection: &Selection,
        group: u32,
        rows: impl Iterator<Item = Range<u32>>,
    ) -> Result<Option<(Vec<Decoded>, SomeRows)>> {
        let place = self.dataset.groups()[group as usize];
        let wanted = SomeRows::bridging(rows, BRIDGED);
        let leaves = self.leaves(selection, group);
        if wanted.length() > place.rows / 2 || !self.is_worth_it(&leaves) {
            return Ok(None);
        }
        let Some(places) = self.places(&leaves, group)? else {
            return Ok(None);
        };
        let ranges = wanted.ranges().iter();
        let ranges = ranges.map(|range| range.start as usize..range.end as usize);
        let rows = RowSelection::from_consecutive_ranges(ranges, place.rows as usize);
        let mut pages = Vec::new();
        for (leaf, chunk) in &leaves {
            let locations = places[leaf].page_locations();
            let (start, _) = chunk.byte_range();
            // What is before the first page is the dictionary.
            if let Some(first) = locations
                .first()
                .and_then(|page| page.offset.try_into().ok())
                && start < first
            {
                pages.push(start..first);
            }
            pages.extend(rows.scan_ranges(locations));
        }
        let bytes = self.read(group, pages)?;
        let metadata = self.one_group(group, places)?;
        let columns = (selection.sources(place.file).iter())
            .zip(selection.schema.fields())
            .map(|(source, field)| match source {
                Source::Name(value) => Ok(value.column(field, wanted.length() as usize)),
                Source::Column(column) => ColumnOfGroup {
                    metadata: &metadata,
                    group: 0,
                    column: *column,
                    field,
                }
                .with_arrow(&bytes, Some((rows.clone(), wanted.length() as usize)))
                .map(Decoded::from_array)
                .map_err(|error| error.in_column(field.name())),
            })
            .collect::<Result<_>>()?;
        Ok(Some((columns, wanted)))
    }

    /// The leaf columns of a selection that are in the file of a group.
    fn leaves(&self, selection: &Selection, group: u32) -> Vec<(usize, &ColumnChunkMetaData)> {
        let place = &self.dataset.groups()[group as usize];
        let metadata = &self.dataset.file_of(group).metadata;
        let columns = selection.columns(place.file);
        super::leaves(metadata, place.index as usize, &columns).collect()
    }

    /// Whether reading some of it costs less than reading all at once.
    fn is_worth_it(&self, leaves: &[(usize, &ColumnChunkMetaData)]) -> bool {
        let bytes: u64 = leaves.iter().map(|(_, chunk)| chunk.byte_range().1).sum();
        bytes > self.dataset.storage().gap()
    }

    /// The offset indexes of leaf columns; nothing if one is not there.
    fn places(
        &self,
        leaves: &[(usize, &ColumnChunkMetaData)],
        group: u32,
    ) -> Result<Option<Places>> {
        let ranges: Option<Vec<Range<u64>>> = (leaves.iter())
            .map(|(_, chunk)| chunk.offset_index_range())
            .collect();
        let Some(ranges) = ranges.filter(|ranges| !ranges.is_empty()) else {
            return Ok(None);
        };
        let bytes = self.read(group, ranges.clone())?;
        let places = leaves.iter().zip(ranges).map(|((leaf, _), range)| {
            let index = bytes
                .get(range)
                .and_then(|bytes| decode_offset_index(&bytes));
            Ok((
                *leaf,
                index.map_err(|error| Error::corrupt(error.to_string()))?,
            ))
        });
        places.collect::<Result<_>>().map(Some)
    }

    /// The metadata of a group by itself, with the places of its pages.
    fn one_group(&self, group: u32, places: Places) -> Result<ArrowReaderMetadata> {
        let place = &self.dataset.groups()[group as usize];
        let metadata = self.dataset.file_of(group).metadata.metadata();
        let row_group = metadata.row_group(place.index as usize).clone();
        let mut index = PageIndexBuilder::new(1, row_group.num_columns());
        for (leaf, places) in places {
            index.put_offset_index(places, 0, leaf);
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

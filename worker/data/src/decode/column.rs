//! Decodes one top-level column of a row group: by its pages, or with Arrow's reader.

use std::fs::File;

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};
use arrow_select::concat::concat;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy,
        },
    },
    basic::Compression,
    file::metadata::ColumnChunkMetaData,
};

use super::{
    brotli,
    bytes::GroupBytes,
    chunk_source::ChunkSource,
    claims::check_memory,
    column_chunk::{ColumnChunk, is_decompressed_here, uncompressed_bytes},
    fixed_width_fast_path,
    page_path::Leaf,
    page_survey::PageSurvey,
    page_walk::PageWalk,
    variable_width,
};
use crate::{
    buffers::BufferPool,
    column::{ColumnData, DecodedColumn},
    error::{Error, Result},
};

/// What the page path did with a column.
#[derive(Debug)]
pub(super) enum ByPages {
    Decoded(DecodedColumn),
    /// It does not decode these pages.
    Refused,
    /// It does not decode this type or this codec.
    Unsupported,
}

/// What decoding a column took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Bytes that were read from a file.
    pub(super) read: u64,
    /// Bytes of pages after decompression, each time that one was decompressed.
    pub(super) decompressed: u64,
}

/// A top-level column of a row group.
pub(super) struct GroupColumn<'a> {
    pub(super) metadata: &'a ArrowReaderMetadata,
    /// Index within the file.
    pub(super) group: usize,
    /// Index among the file's top-level columns.
    pub(super) column: usize,
    pub(super) field: &'a Field,
}

impl GroupColumn<'_> {
    /// Decodes the column from the bytes of its chunk.
    pub(super) fn by_pages(
        &self,
        bytes: &GroupBytes,
        buffers: &BufferPool,
    ) -> Result<(ByPages, Cost)> {
        let Some((_, leaf, chunk)) = self.leaf() else {
            return Ok((ByPages::Unsupported, Cost::default()));
        };
        let mut source = ChunkSource::Memory(bytes.chunk(chunk)?);
        self.page_path(leaf, chunk, &mut source, buffers)
    }

    /// Decodes the column from an open file, page by page, if it is compressed.
    pub(super) fn decode_from_file(
        &self,
        file: &File,
        buffers: &BufferPool,
    ) -> Result<(ByPages, Cost)> {
        let unsupported = (ByPages::Unsupported, Cost::default());
        let Some((_, leaf, chunk)) = self.leaf() else {
            return Ok(unsupported);
        };
        if !is_decompressed_here(chunk.compression()) {
            return Ok(unsupported);
        }
        let (start, length) = chunk.byte_range();
        let mut source = ChunkSource::file(file, start, length as usize);
        self.page_path(leaf, chunk, &mut source, buffers)
    }

    /// Whether the column takes the page path, from memory and, if it is compressed, from its file.
    #[cfg(test)]
    pub(super) fn takes_page_path(&self, bytes: &GroupBytes, file: &File) -> bool {
        let buffers = BufferPool::default();
        let is_decoded = |path| matches!(path, ByPages::Decoded(_));
        let in_memory = is_decoded(self.by_pages(bytes, &buffers).unwrap().0);
        match self.decode_from_file(file, &buffers).unwrap() {
            (ByPages::Unsupported, _) => {}
            (by_pages, _) => assert_eq!(is_decoded(by_pages), in_memory),
        }
        in_memory
    }

    /// The only leaf of the column with its number, and its chunk, if the page path covers it.
    pub(super) fn leaf(&self) -> Option<(usize, Leaf, &ColumnChunkMetaData)> {
        let schema = self.metadata.parquet_schema();
        let mut leaves = (0..schema.num_columns())
            .filter(|leaf| schema.get_column_root_idx(*leaf) == self.column);
        let (Some(number), None) = (leaves.next(), leaves.next()) else {
            return None;
        };
        let group = self.metadata.metadata().row_group(self.group);
        let chunk = group.column(number);
        let leaf = Leaf::new(self.field, schema, number, chunk, group.num_rows() as usize)?;
        Some((number, leaf, chunk))
    }

    fn page_path(
        &self,
        leaf: Leaf,
        metadata: &ColumnChunkMetaData,
        source: &mut ChunkSource<'_>,
        buffers: &BufferPool,
    ) -> Result<(ByPages, Cost)> {
        let is_compressed = metadata.compression() != Compression::UNCOMPRESSED;
        let uncompressed = match is_decompressed_here(metadata.compression()) {
            true => uncompressed_bytes(metadata, source)?,
            false => 0,
        };
        let (mut survey, mut cost) = (PageSurvey::new(leaf), Cost::default());
        let chunk = ColumnChunk::read(
            metadata,
            source,
            uncompressed,
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
        cost.read = source.bytes_read();
        let Some(chunk) = chunk else {
            return Ok(match survey.is_refused() {
                true => (ByPages::Refused, cost),
                false => (ByPages::Unsupported, cost),
            });
        };
        let data_type = self.field.data_type();
        let fixed = match survey.finish() {
            Some(rows) => fixed_width_fast_path::decode(leaf, &chunk, rows, buffers)?,
            None => None,
        };
        let decoded = match fixed.filter(|fixed| has_size(data_type, fixed.size())) {
            Some(fixed) => Some(ColumnData::FixedWidth(fixed)),
            None => variable_width::decode(leaf, data_type, &chunk, None, buffers)?,
        };
        let decoded = decoded.map(DecodedColumn::new);
        Ok((decoded.map_or(ByPages::Refused, ByPages::Decoded), cost))
    }

    /// Decodes all rows of the column with Arrow's reader, if there is enough memory. Returns the bytes of its pages as well.
    pub(super) fn decode_with_arrow(&self, bytes: &GroupBytes) -> Result<(DecodedColumn, Cost)> {
        let (needed, cost) = self.needed(bytes)?;
        check_memory(needed)?;
        let array = self.with_arrow(bytes, None)?;
        Ok((DecodedColumn::from_array(array), cost))
    }

    /// The memory that Arrow's reader will need, and the bytes that it will decompress, by the headers of the pages of the column.
    ///
    /// # Errors
    /// If a page header is invalid, or if the pages disagree with the footer.
    pub(super) fn needed(&self, bytes: &GroupBytes) -> Result<(u64, Cost)> {
        let group = self.metadata.metadata().row_group(self.group);
        let rows = group.num_rows().max(0) as u64;
        let (mut needed, mut cost) = (0_u64, Cost::default());
        for (_, chunk) in super::leaves(self.metadata, self.group, &[self.column]) {
            let mut pages = PageWalk::default();
            let mut source = ChunkSource::Memory(bytes.chunk(chunk)?);
            pages.add(&mut source)?;
            if let Compression::BROTLI(_) = chunk.compression() {
                brotli::check_sizes(&mut source)?;
            }
            needed = needed.saturating_add(pages.needed(chunk, rows)?);
            if chunk.compression() != Compression::UNCOMPRESSED {
                cost.decompressed = cost.decompressed.saturating_add(pages.uncompressed);
            }
        }
        Ok((needed, cost))
    }

    /// Decodes the column with Arrow's reader, which supports all types and encodings: all rows, or a selection with
    /// its number of rows.
    pub(super) fn with_arrow(
        &self,
        bytes: &GroupBytes,
        chosen: Option<(RowSelection, usize)>,
    ) -> Result<ArrayRef> {
        let bad = Error::corrupt;
        let all = self.metadata.metadata().row_group(self.group).num_rows() as usize;
        let rows = chosen.as_ref().map_or(all, |(_, rows)| *rows);
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), [self.column]);
        let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
            bytes.clone(),
            self.metadata.clone(),
        )
        .with_row_groups(vec![self.group])
        .with_projection(mask)
        .with_batch_size(rows.max(1));
        if let Some((selection, _)) = chosen {
            // Pages without a selected row were not read, so they cannot be scanned.
            reader = reader
                .with_row_selection(selection)
                .with_row_selection_policy(RowSelectionPolicy::Selectors);
        }
        let batches = reader.build().map_err(|error| bad(error.to_string()))?;
        let parts: Vec<ArrayRef> = batches
            .map(|batch| batch.map(|batch| batch.column(0).clone()))
            .collect::<Result<_, _>>()
            .map_err(|error| bad(error.to_string()))?;
        let found: usize = parts.iter().map(|part| part.len()).sum();
        if found != rows {
            return Err(bad(format!(
                "it holds {found} rows, the footer says {rows}"
            )));
        }
        match &parts[..] {
            [] => Err(bad("it holds no row".to_owned())),
            [part] => Ok(part.clone()),
            parts => {
                let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
                concat(&parts).map_err(|error| bad(error.to_string()))
            }
        }
    }
}

/// Whether rows of `size` bytes match the type.
fn has_size(data_type: &DataType, size: usize) -> bool {
    match data_type {
        DataType::FixedSizeList(field, length) => {
            field
                .data_type()
                .primitive_width()
                .map(|width| width * *length as usize)
                == Some(size)
        }
        _ => true,
    }
}

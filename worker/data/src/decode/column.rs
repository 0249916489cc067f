//! Decodes one top-level column of a row group: by the fast path if its rows are tensors, else with Arrow's reader.

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
    basic::{Compression, Type as Physical},
    file::metadata::ColumnChunkMetaData,
    schema::types::ColumnDescriptor,
};

use super::{
    brotli,
    bytes::GroupBytes,
    chunk_source::ChunkSource,
    claims::check_memory,
    column_chunk::{ColumnChunk, is_decompressed_here},
    fixed_width_fast_path,
    page_walk::PageWalk,
    uniform_rows::{Leaf, UniformRows, Values},
};
use crate::{
    buffers::BufferPool,
    column::{ColumnData, DecodedColumn},
    error::{Error, Result},
};

/// What the fast path did with a column.
#[derive(Debug)]
pub(super) enum FastPath {
    Decoded(DecodedColumn),
    /// The rows are no tensors, such as lists of several lengths.
    Ragged,
    /// It does not support the type or the codec.
    Unsupported,
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
    /// Decodes the column from the bytes of its chunk, if its rows are tensors.
    pub(super) fn by_fast_path(
        &self,
        bytes: &GroupBytes,
        buffers: &BufferPool,
    ) -> Result<FastPath> {
        let Some((leaf, chunk)) = self.tensor() else {
            return Ok(FastPath::Unsupported);
        };
        let mut source = ChunkSource::Memory(bytes.chunk(chunk)?);
        self.fast_path(leaf, chunk, &mut source, buffers)
    }

    /// Decodes the column from an open file, page by page, if it is compressed and if its rows are tensors. Returns the
    /// bytes that were read as well.
    pub(super) fn decode_from_file(
        &self,
        file: &File,
        buffers: &BufferPool,
    ) -> Result<(FastPath, u64)> {
        let Some((leaf, chunk)) = self.tensor() else {
            return Ok((FastPath::Unsupported, 0));
        };
        if !is_decompressed_here(chunk.compression()) {
            return Ok((FastPath::Unsupported, 0));
        }
        let (start, length) = chunk.byte_range();
        let mut source = ChunkSource::file(file, start, length as usize);
        let decoded = self.fast_path(leaf, chunk, &mut source, buffers)?;
        Ok((decoded, source.bytes_read()))
    }

    /// Whether the column takes the fast path, from memory and, if it is compressed, from its file.
    #[cfg(test)]
    pub(super) fn takes_fast_path(&self, bytes: &GroupBytes, file: &File) -> bool {
        let buffers = BufferPool::default();
        let is_decoded = |path| matches!(path, FastPath::Decoded(_));
        let in_memory = is_decoded(self.by_fast_path(bytes, &buffers).unwrap());
        match self.decode_from_file(file, &buffers).unwrap() {
            (FastPath::Unsupported, _) => {}
            (by_pages, _) => assert_eq!(is_decoded(by_pages), in_memory),
        }
        in_memory
    }

    /// The only leaf of the column and its chunk, if its rows may be tensors.
    fn tensor(&self) -> Option<(Leaf, &ColumnChunkMetaData)> {
        let schema = self.metadata.parquet_schema();
        let mut leaves = (0..schema.num_columns())
            .filter(|leaf| schema.get_column_root_idx(*leaf) == self.column);
        let (Some(number), None) = (leaves.next(), leaves.next()) else {
            return None;
        };
        let group = self.metadata.metadata().row_group(self.group);
        let descriptor = schema.column(number);
        let leaf = Leaf {
            values: tensor(self.field.data_type(), &descriptor)?,
            definition: descriptor.max_def_level(),
            rows: group.num_rows() as usize,
        };
        Some((leaf, group.column(number)))
    }

    fn fast_path(
        &self,
        leaf: Leaf,
        metadata: &ColumnChunkMetaData,
        source: &mut ChunkSource<'_>,
        buffers: &BufferPool,
    ) -> Result<FastPath> {
        let (mut rows, mut is_ragged) = (UniformRows::new(leaf), false);
        let chunk = ColumnChunk::read(metadata, source, buffers, |page_type, page, content| {
            is_ragged = !rows.add(page_type, page, content);
            !is_ragged
        })?;
        let Some(chunk) = chunk else {
            return Ok(match is_ragged {
                true => FastPath::Ragged,
                false => FastPath::Unsupported,
            });
        };
        let fixed = fixed_width_fast_path::decode(leaf, &chunk, rows, buffers)?;
        Ok(match fixed {
            Some(fixed) if has_size(self.field.data_type(), fixed.size()) => {
                FastPath::Decoded(DecodedColumn::new(ColumnData::FixedWidth(fixed)))
            }
            _ => FastPath::Ragged,
        })
    }

    /// Decodes all rows of the column with Arrow's reader, if there is enough memory.
    pub(super) fn decode_with_arrow(&self, bytes: &GroupBytes) -> Result<DecodedColumn> {
        check_memory(self.needed(bytes)?)?;
        self.with_arrow(bytes, None).map(DecodedColumn::from_array)
    }

    /// The memory that Arrow's reader will need, by the headers of the pages of the column.
    ///
    /// # Errors
    /// If a page header is invalid, or if the pages disagree with the footer.
    pub(super) fn needed(&self, bytes: &GroupBytes) -> Result<u64> {
        let group = self.metadata.metadata().row_group(self.group);
        let rows = group.num_rows().max(0) as u64;
        let mut needed = 0_u64;
        for (_, chunk) in super::leaves(self.metadata, self.group, &[self.column]) {
            let mut pages = PageWalk::default();
            let mut source = ChunkSource::Memory(bytes.chunk(chunk)?);
            pages.add(&mut source)?;
            if let Compression::BROTLI(_) = chunk.compression() {
                brotli::check_sizes(&mut source)?;
            }
            needed = needed.saturating_add(pages.needed(chunk, rows)?);
        }
        Ok(needed)
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

/// Whether rows of this type may be tensors, with the same representation in Arrow and in the file.
fn tensor(data_type: &DataType, leaf: &ColumnDescriptor) -> Option<Values> {
    use DataType::{
        Binary, FixedSizeList, Float32, Float64, Int32, Int64, LargeBinary, LargeList, List,
        UInt32, UInt64,
    };
    match data_type {
        List(field) | LargeList(field) | FixedSizeList(field, _) if leaf.max_rep_level() == 1 => {
            let number = match (field.data_type(), leaf.physical_type()) {
                (Float32, Physical::FLOAT) | (Int32 | UInt32, Physical::INT32) => 4,
                (Float64, Physical::DOUBLE) | (Int64 | UInt64, Physical::INT64) => 8,
                _ => return None,
            };
            Some(Values::Lists { number })
        }
        Binary | LargeBinary
            if leaf.max_rep_level() == 0 && leaf.physical_type() == Physical::BYTE_ARRAY =>
        {
            Some(Values::Bytes)
        }
        _ => None,
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

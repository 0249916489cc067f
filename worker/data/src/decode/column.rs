//! One top-level column of a row group: by the short way if its rows are tensors, else by Arrow's reader.

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
    basic::Type as Physical,
    file::{metadata::ColumnChunkMetaData, reader::ChunkReader},
    schema::types::ColumnDescriptor,
};

use super::{
    bytes::GroupBytes,
    chunk::{Chunk, is_decompressed_here},
    corrupt,
    source::Source,
    straight::{self, Leaf, Values},
};
use crate::{
    buffers::Buffers,
    column::{Decoded, Form},
    error::Result,
};

/// A top-level column of a row group.
pub(super) struct ColumnOfGroup<'a> {
    pub(super) metadata: &'a ArrowReaderMetadata,
    /// Number within the file.
    pub(super) group: usize,
    /// Number among the file's top-level columns.
    pub(super) column: usize,
    pub(super) field: &'a Field,
}

impl ColumnOfGroup<'_> {
    /// The column, from the bytes of its chunks.
    pub(super) fn decode(&self, bytes: &GroupBytes, buffers: &Buffers) -> Result<Decoded> {
        if let Some((values, leaf)) = self.tensor() {
            let (start, length) = self.chunk(leaf).byte_range();
            let chunk = bytes
                .get_bytes(start, length as usize)
                .map_err(|error| corrupt(error.to_string()))?;
            if let Some(decoded) = self.straight(values, leaf, Source::Memory(chunk), buffers)? {
                return Ok(decoded);
            }
        }
        self.with_arrow(bytes, None).map(Decoded::from_array)
    }

    /// The column from an open file, page by page. Nothing if it has to be read otherwise; gives the bytes of it,
    /// too.
    pub(super) fn of_file(&self, file: &File, buffers: &Buffers) -> Result<Option<(Decoded, u64)>> {
        let Some((values, leaf)) = self.tensor() else {
            return Ok(None);
        };
        let chunk = self.chunk(leaf);
        if !is_decompressed_here(chunk.compression()) {
            return Ok(None);
        }
        let (start, length) = chunk.byte_range();
        let source = Source::file(file, start, length as usize);
        let decoded = self.straight(values, leaf, source, buffers)?;
        Ok(decoded.map(|decoded| (decoded, length)))
    }

    /// Whether the column takes the short way, from memory and, if it is compressed, from its file.
    #[cfg(test)]
    pub(super) fn is_straight(&self, bytes: &GroupBytes, file: &File) -> bool {
        let Some((values, leaf)) = self.tensor() else {
            return false;
        };
        let buffers = Buffers::default();
        let (start, length) = self.chunk(leaf).byte_range();
        let chunk = Source::Memory(bytes.get_bytes(start, length as usize).unwrap());
        let straight = self.straight(values, leaf, chunk, &buffers).unwrap();
        if is_decompressed_here(self.chunk(leaf).compression()) {
            let by_pages = self.of_file(file, &buffers).unwrap();
            assert_eq!(by_pages.is_some(), straight.is_some());
        }
        straight.is_some()
    }

    fn chunk(&self, leaf: usize) -> &ColumnChunkMetaData {
        self.metadata.metadata().row_group(self.group).column(leaf)
    }

    /// The one leaf of the column, if its rows may be tensors.
    fn tensor(&self) -> Option<(Values, usize)> {
        let schema = self.metadata.parquet_schema();
        let mut leaves = (0..schema.num_columns())
            .filter(|leaf| schema.get_column_root_idx(*leaf) == self.column);
        let (Some(leaf), None) = (leaves.next(), leaves.next()) else {
            return None;
        };
        Some((tensor(self.field.data_type(), &schema.column(leaf))?, leaf))
    }

    /// The column by the short way, if its rows are tensors.
    fn straight(
        &self,
        values: Values,
        leaf: usize,
        source: Source<'_>,
        buffers: &Buffers,
    ) -> Result<Option<Decoded>> {
        let group = self.metadata.metadata().row_group(self.group);
        let descriptor = self.metadata.parquet_schema().column(leaf);
        let Some(chunk) = Chunk::read(group.column(leaf), source, buffers)? else {
            return Ok(None);
        };
        let leaf = Leaf {
            values,
            definition: descriptor.max_def_level(),
            rows: group.num_rows() as usize,
        };
        let fixed = straight::decode(leaf, &chunk, buffers)?;
        Ok(fixed
            .filter(|fixed| has_size(self.field.data_type(), fixed.size()))
            .map(|fixed| Decoded::new(Form::Fixed(fixed))))
    }

    /// The column by Arrow's own reader, which knows all types and encodings: all rows, or so many chosen ones.
    pub(super) fn with_arrow(
        &self,
        bytes: &GroupBytes,
        chosen: Option<(RowSelection, usize)>,
    ) -> Result<ArrayRef> {
        let bad = |error: String| corrupt(error);
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
            // Pages that hold no chosen row are not there to be skipped over.
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

/// Whether rows of this type may be tensors whose values Arrow holds as the file does.
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

/// Whether rows of so many bytes are rows of this type.
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

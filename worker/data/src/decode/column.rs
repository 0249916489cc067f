//! One top-level column of a row group: by the short way if its rows are tensors, else by Arrow's reader.

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder},
    },
    basic::Type as Physical,
    file::reader::ChunkReader,
    schema::types::ColumnDescriptor,
};

use super::{
    bytes::GroupBytes,
    chunk::Chunk,
    corrupt,
    straight::{self, Leaf, Values},
};
use crate::{
    buffers::Buffers,
    column::{Decoded, Form},
    error::Result,
};

/// A top-level column of a row group that was read.
pub(super) struct ColumnOfGroup<'a> {
    pub(super) metadata: &'a ArrowReaderMetadata,
    /// Number within the file.
    pub(super) group: usize,
    /// Number among the file's top-level columns.
    pub(super) column: usize,
    pub(super) field: &'a Field,
    pub(super) bytes: &'a GroupBytes,
}

impl ColumnOfGroup<'_> {
    pub(super) fn decode(&self, buffers: &Buffers) -> Result<Decoded> {
        match self.straight(buffers)? {
            Some(decoded) => Ok(decoded),
            None => self.with_arrow().map(Decoded::from_array),
        }
    }

    /// The column by the short way, if its rows are tensors.
    pub(super) fn straight(&self, buffers: &Buffers) -> Result<Option<Decoded>> {
        let schema = self.metadata.parquet_schema();
        let group = self.metadata.metadata().row_group(self.group);
        let mut leaves = (0..group.num_columns())
            .filter(|leaf| schema.get_column_root_idx(*leaf) == self.column);
        let (Some(leaf), None) = (leaves.next(), leaves.next()) else {
            return Ok(None);
        };
        let descriptor = schema.column(leaf);
        let Some(values) = tensor(self.field.data_type(), &descriptor) else {
            return Ok(None);
        };
        let metadata = group.column(leaf);
        let (start, length) = metadata.byte_range();
        let bytes = self
            .bytes
            .get_bytes(start, length as usize)
            .map_err(|error| corrupt(error.to_string()))?;
        let Some(chunk) = Chunk::read(metadata, bytes, buffers)? else {
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

    /// The column by Arrow's own reader, which knows all types and encodings.
    fn with_arrow(&self) -> Result<ArrayRef> {
        let rows = self.metadata.metadata().row_group(self.group).num_rows() as usize;
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), [self.column]);
        let mut batches = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.bytes.clone(),
            self.metadata.clone(),
        )
        .with_row_groups(vec![self.group])
        .with_projection(mask)
        .with_batch_size(rows.max(1))
        .build()
        .map_err(|error| corrupt(error.to_string()))?;
        let batch = batches
            .next()
            .ok_or_else(|| corrupt("it holds no row".to_owned()))?
            .map_err(|error| corrupt(error.to_string()))?;
        if batch.num_rows() != rows {
            let found = batch.num_rows();
            return Err(corrupt(format!(
                "it holds {found} rows, the footer says {rows}"
            )));
        }
        Ok(batch.column(0).clone())
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

//! A row group from its file into memory: the bytes of the chosen columns, then each column by itself, so
//! that an error names the column it is in.

mod bytes;
mod chunk;
mod header;
mod hybrid;
mod lengths;
mod straight;

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

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

use self::{
    bytes::GroupBytes,
    chunk::Chunk,
    straight::{Leaf, Values},
};
use crate::{
    buffers::Buffers,
    column::{Decoded, Form},
    dataset::{Dataset, Selection},
    error::{Error, Problem, Result},
};

/// A row group in memory: all its rows, in the order of the file.
#[derive(Debug)]
pub(crate) struct DecodedGroup {
    /// In the order of the selection.
    pub(crate) columns: Vec<Decoded>,
    pub(crate) rows: u32,
    /// Bytes of memory that it holds.
    pub(crate) bytes: usize,
}

impl DecodedGroup {
    pub(crate) fn new(columns: Vec<Decoded>, rows: u32) -> Self {
        let bytes = columns.iter().map(Decoded::bytes).sum();
        Self {
            columns,
            rows,
            bytes,
        }
    }
}

/// Reads and decodes one row group. Blocks.
///
/// # Errors
/// Names file, row group and, where one is to blame, column: the file is gone or changed, a page is damaged.
pub(crate) fn decode(
    dataset: &Dataset,
    selection: &Selection,
    group: u32,
    buffers: &Buffers,
) -> Result<DecodedGroup> {
    let index = dataset.groups()[group as usize].index as usize;
    let file = dataset.file_of(group);
    catch_unwind(AssertUnwindSafe(|| {
        decode_group(dataset, selection, group, buffers)
    }))
    .unwrap_or_else(|panic| Err(Problem::Corrupt(describe(&*panic)).into()))
    .map_err(|error| error.in_file(&file.info.name).in_row_group(index))
}

fn decode_group(
    dataset: &Dataset,
    selection: &Selection,
    group: u32,
    buffers: &Buffers,
) -> Result<DecodedGroup> {
    let place = &dataset.groups()[group as usize];
    let file = dataset.file_of(group);
    let columns = selection.places(place.file);
    let ranges = chunks(&file.metadata, place.index as usize, columns);
    let bytes = GroupBytes::read(dataset.storage(), &file.info, ranges)?;
    let columns = columns
        .iter()
        .zip(selection.schema.fields())
        .map(|(column, field)| {
            let column = ColumnOfGroup {
                metadata: &file.metadata,
                group: place.index as usize,
                column: *column,
                field,
                bytes: &bytes,
            };
            column
                .decode(buffers)
                .map_err(|error| error.in_column(field.name()))
        })
        .collect::<Result<_>>()?;
    Ok(DecodedGroup::new(columns, place.rows))
}

/// Where the chunks of some top-level columns lie in the file.
fn chunks(metadata: &ArrowReaderMetadata, group: usize, columns: &[usize]) -> Vec<Range<u64>> {
    let group = metadata.metadata().row_group(group);
    let schema = metadata.parquet_schema();
    (0..group.num_columns())
        .filter(|leaf| columns.contains(&schema.get_column_root_idx(*leaf)))
        .map(|leaf| {
            let (start, length) = group.column(leaf).byte_range();
            start..start + length
        })
        .collect()
}

/// A top-level column of a row group that was read.
struct ColumnOfGroup<'a> {
    metadata: &'a ArrowReaderMetadata,
    /// Number within the file.
    group: usize,
    /// Number among the file's top-level columns.
    column: usize,
    field: &'a Field,
    bytes: &'a GroupBytes,
}

impl ColumnOfGroup<'_> {
    fn decode(&self, buffers: &Buffers) -> Result<Decoded> {
        match self.straight(buffers)? {
            Some(decoded) => Ok(decoded),
            None => self.with_arrow().map(Decoded::from_array),
        }
    }

    /// The column by the short way, if its rows are tensors.
    fn straight(&self, buffers: &Buffers) -> Result<Option<Decoded>> {
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

fn corrupt(why: String) -> Error {
    Problem::Corrupt(why).into()
}

/// What a panic said. Decoders may panic on damaged pages; that is an error of the file and not ours.
fn describe(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("its decoder panicked").to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Which way a column takes shows in nothing but its cost, so it is looked at here.
    #[test]
    fn tensors_of_other_writers_take_the_short_way() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        for name in ["plain-v1", "dictionary-v1", "dictionary-v2", "checksums-v1"] {
            let dataset =
                Dataset::open_local([fixtures.join(format!("pyarrow-{name}.parquet"))]).unwrap();
            let selection = Selection::new(&dataset, None).unwrap();
            for group in 0..dataset.groups().len() as u32 {
                let file = dataset.file_of(group);
                let ranges = chunks(&file.metadata, group as usize, selection.places(0));
                let bytes = GroupBytes::read(dataset.storage(), &file.info, ranges).unwrap();
                for (column, field) in selection.schema.fields().iter().enumerate() {
                    let metadata = &file.metadata;
                    let group = group as usize;
                    let column = ColumnOfGroup {
                        metadata,
                        group,
                        column,
                        field,
                        bytes: &bytes,
                    };
                    let straight = column.straight(&Buffers::default()).unwrap().is_some();
                    let tensors =
                        ["list", "few", "fixed", "bytes"].contains(&field.name().as_str());
                    assert_eq!(
                        straight,
                        tensors,
                        "{name}, row group {group}, {}",
                        field.name()
                    );
                }
            }
        }
    }
}

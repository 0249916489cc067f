//! Columns of decoded row groups, in the representation from which rows are copied fastest.
//!
//! Fixed-width rows (numbers, tensors as lists or as bytes) are in a few blocks, mostly at equal distances. The blocks
//! are the decoded pages, or the pages as they were read. So a row is copied once, from the page to the batch. Byte
//! strings, strings and lists of numbers of variable length have a table of their places in the pages, and a bit for each
//! row if some are missing. All other data (numbers with nulls, booleans, lists with null elements, nested types) is an
//! Arrow array, and Arrow's kernels gather from it.

mod assemble;
mod fixed_width;
mod gather;
mod variable_width;

use std::{ops::Range, sync::OnceLock};

use arrow_array::{Array, ArrayRef, make_array};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use arrow_select::concat::concat;

pub(crate) use fixed_width::{Block, FixedWidth, RowOffsets};
pub(crate) use gather::{Pick, gather};
pub(crate) use variable_width::{Span, VariableWidth, list_array};

/// One column of a decoded row group.
#[derive(Debug)]
pub(crate) struct DecodedColumn {
    data: ColumnData,
    /// The same as an Arrow array. Needed if another row group of a batch has another representation.
    array: OnceLock<ArrayRef>,
}

#[derive(Debug)]
pub(crate) enum ColumnData {
    FixedWidth(FixedWidth),
    VariableWidth(VariableWidth),
    Arrow(ArrayRef),
}

/// A column of a batch.
#[derive(Clone, Debug)]
pub struct Column {
    /// The rows, in the type of the files.
    pub array: ArrayRef,
    /// For lists and byte strings: the number of values (or bytes) of each row, if all rows have the same. The values
    /// are then one contiguous array of shape (rows, width), without a copy.
    pub width: Option<usize>,
}

impl DecodedColumn {
    pub(crate) fn new(data: ColumnData) -> Self {
        Self {
            data,
            array: OnceLock::new(),
        }
    }

    /// Chooses the best representation of an Arrow array, without copying values.
    pub(crate) fn from_array(array: ArrayRef) -> Self {
        let data = array.to_data();
        let data = FixedWidth::from_data(&data)
            .map(ColumnData::FixedWidth)
            .or_else(|| VariableWidth::from_data(&data).map(ColumnData::VariableWidth))
            .unwrap_or(ColumnData::Arrow(array));
        Self::new(data)
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        match &self.data {
            ColumnData::FixedWidth(fixed) => fixed.bytes(),
            ColumnData::VariableWidth(varying) => varying.bytes(),
            ColumnData::Arrow(array) => array.get_array_memory_size(),
        }
    }

    /// The width of a batch of these rows; see [`Column::width`].
    pub(crate) fn width(&self, data_type: &DataType) -> Option<usize> {
        match &self.data {
            ColumnData::FixedWidth(fixed) => gather::width(data_type, fixed.size()),
            ColumnData::VariableWidth(varying) => varying
                .size()
                .and_then(|size| gather::width(data_type, size)),
            ColumnData::Arrow(_) => None,
        }
    }

    /// The rows of some ranges, which are sorted. `None` if Arrow cannot join them.
    pub(crate) fn select(&self, rows: &[Range<usize>], data_type: &DataType) -> Option<Self> {
        let array = self.array(data_type);
        let parts = rows.iter().map(|rows| array.slice(rows.start, rows.len()));
        let parts: Vec<ArrayRef> = parts.collect();
        let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
        concat(&parts).ok().map(Self::from_array)
    }

    /// All rows as an Arrow array of `data_type`.
    pub(crate) fn array(&self, data_type: &DataType) -> &ArrayRef {
        self.array.get_or_init(|| match &self.data {
            ColumnData::FixedWidth(fixed) => fixed.to_array(data_type),
            ColumnData::VariableWidth(varying) => varying.to_array(data_type),
            ColumnData::Arrow(array) if array.data_type() == data_type => array.clone(),
            ColumnData::Arrow(array) => renamed(array.to_data(), data_type),
        })
    }
}

/// The same values with a type that only differs in the names of nested fields. Writers use different names for the
/// elements of a list.
fn renamed(data: ArrayData, data_type: &DataType) -> ArrayRef {
    let children: Vec<ArrayData> = match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            data.child_data()
                .iter()
                .map(|child| {
                    renamed(make_array(child.clone()).to_data(), field.data_type()).to_data()
                })
                .collect()
        }
        _ => data.child_data().to_vec(),
    };
    let builder = data
        .into_builder()
        .data_type(data_type.clone())
        .child_data(children);
    // SAFETY: The buffers are those of a valid array whose type has the same layout. Opening a data set checks that
    // types agree in all but names.
    make_array(unsafe { builder.build_unchecked() })
}

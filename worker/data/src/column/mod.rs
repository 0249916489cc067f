//! One column of a decoded row group, in the form from which rows are copied fastest.
//!
//! Rows of one size (numbers, tensors as lists or as bytes) lie in a few blocks, mostly at equal distances,
//! which are the pages themselves, decoded or as they were read: a row goes from there to its batch in one copy. Bytes and strings
//! of varying length have a table of places. All else (nulls, booleans, ragged lists, nested types) is an
//! Arrow array, and Arrow's own kernels pick from it.

mod assemble;
mod fixed;
mod gather;
mod varying;

use std::sync::OnceLock;

use arrow_array::{Array, ArrayRef, make_array};
use arrow_data::ArrayData;
use arrow_schema::DataType;

pub(crate) use fixed::{Block, Fixed, Places};
pub(crate) use gather::{Pick, gather};
pub(crate) use varying::Varying;

/// See the module.
#[derive(Debug)]
pub(crate) struct Decoded {
    form: Form,
    /// The same as an Arrow array: asked for when another group in a batch has the column in another form.
    array: OnceLock<ArrayRef>,
}

#[derive(Debug)]
pub(crate) enum Form {
    Fixed(Fixed),
    Varying(Varying),
    Arrow(ArrayRef),
}

/// A column of a batch.
#[derive(Clone, Debug)]
pub struct Column {
    /// The rows, with the type that the files have.
    pub array: ArrayRef,
    /// For lists and byte strings: the number of values (or bytes) in each row, if it is the same in all.
    /// The values then are one contiguous array of shape (rows, width), without a copy.
    pub width: Option<usize>,
}

impl Decoded {
    pub(crate) fn new(form: Form) -> Self {
        Self {
            form,
            array: OnceLock::new(),
        }
    }

    /// Finds the best form for what Arrow's reader decoded. Copies no values.
    pub(crate) fn from_array(array: ArrayRef) -> Self {
        let data = array.to_data();
        let form = Fixed::from_data(&data)
            .map(Form::Fixed)
            .or_else(|| Varying::from_data(&data).map(Form::Varying))
            .unwrap_or(Form::Arrow(array));
        Self::new(form)
    }

    /// Bytes of memory that it holds.
    pub(crate) fn bytes(&self) -> usize {
        match &self.form {
            Form::Fixed(fixed) => fixed.bytes(),
            Form::Varying(varying) => varying.bytes(),
            Form::Arrow(array) => array.get_array_memory_size(),
        }
    }

    /// All rows as an Arrow array of `data_type`.
    pub(crate) fn array(&self, data_type: &DataType) -> &ArrayRef {
        self.array.get_or_init(|| match &self.form {
            Form::Fixed(fixed) => fixed.to_array(data_type),
            Form::Varying(varying) => varying.to_array(data_type),
            Form::Arrow(array) if array.data_type() == data_type => array.clone(),
            Form::Arrow(array) => renamed(array.to_data(), data_type),
        })
    }
}

/// The same values under a type that differs in the names of nested fields only, as writers choose
/// different ones for the elements of a list.
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
    // SAFETY: The buffers are those of a valid array whose type has the same layout: data sets are opened
    // only if types agree in all but names.
    make_array(unsafe { builder.build_unchecked() })
}

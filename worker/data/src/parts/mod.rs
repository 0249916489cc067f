//! Columns taken apart into plain memory: values side by side, the offsets of rows, and which rows have a value.
//!
//! Array libraries know no nulls, no lists of different lengths and no structures. They know memory of numbers. So each
//! type of Arrow is one of a few [`Form`]s, by its type alone and never by the values of a batch:
//!
//! | form | types |
//! |---|---|
//! | numbers | integers, floats, booleans (a byte each), dates, times, timestamps, durations |
//! | bytes | binary values, strings |
//! | decimals | decimals, as text |
//! | fixed | fixed-size lists and binary values |
//! | list | lists |
//! | structure | structures; a map is a list of structures `key` and `value` |
//! | nothing | a column of nulls only |
//!
//! Dictionaries take the form of their values. Numbers are not copied, unless Arrow stores them in fewer bits than NumPy
//! does: booleans, 32-bit dates and times.

mod numbers;
mod pad;

use arrow_array::{
    Array, ArrayRef,
    cast::AsArray,
    types::{
        BinaryViewType, ByteViewType, Decimal32Type, Decimal64Type, DecimalType, StringViewType,
    },
    types::{Decimal128Type, Decimal256Type},
};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use arrow_select::take::take;

pub use numbers::Numbers;
pub use pad::{Pad, PadError, Padded};

/// A column, or a part of it, as plain memory.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Number of rows.
    pub rows: usize,
    /// A byte for each row: 1 if it has a value, 0 for null. `None` if all have one.
    pub valid: Option<Buffer>,
    /// The values.
    pub form: Form,
}

/// The values of a column.
#[derive(Clone, Debug)]
pub enum Form {
    /// One number for each row.
    Numbers(Numbers),
    /// Byte strings side by side.
    Bytes {
        /// Row r is `bytes[offsets[r]..offsets[r + 1]]`.
        offsets: Vec<i64>,
        /// The bytes of all rows.
        bytes: Buffer,
        /// Whether they are text in UTF-8.
        is_text: bool,
    },
    /// Decimal numbers as text; empty for null.
    Decimals(Vec<String>),
    /// So many values in each row.
    Fixed {
        /// Number of values of a row.
        width: usize,
        /// The values of all rows, one after the other.
        child: Box<Parts>,
    },
    /// Any number of values in each row.
    List {
        /// Row r has the values `offsets[r]..offsets[r + 1]` of the child. A null row has none.
        offsets: Vec<i64>,
        /// The values of all rows, one after the other.
        child: Box<Parts>,
    },
    /// Values by name.
    Struct(Vec<(String, Parts)>),
    /// No values at all.
    Nothing,
}

impl Parts {
    /// Takes an array apart. `None` if its type, or a type within it, has no form: intervals, unions.
    pub fn of(array: &ArrayRef) -> Option<Self> {
        let form = match array.data_type() {
            DataType::Null => Form::Nothing,
            DataType::Binary => bytes(array.as_binary::<i32>().value_offsets(), array),
            DataType::LargeBinary => bytes(array.as_binary::<i64>().value_offsets(), array),
            DataType::Utf8 => bytes(array.as_string::<i32>().value_offsets(), array),
            DataType::LargeUtf8 => bytes(array.as_string::<i64>().value_offsets(), array),
            DataType::BinaryView => views::<BinaryViewType>(array, false),
            DataType::Utf8View => views::<StringViewType>(array, true),
            DataType::Decimal32(..) => decimals::<Decimal32Type>(array),
            DataType::Decimal64(..) => decimals::<Decimal64Type>(array),
            DataType::Decimal128(..) => decimals::<Decimal128Type>(array),
            DataType::Decimal256(..) => decimals::<Decimal256Type>(array),
            DataType::FixedSizeBinary(width) => fixed_binary(array, *width as usize),
            DataType::FixedSizeList(_, width) => {
                let (list, width) = (array.as_fixed_size_list(), *width as usize);
                let values = list
                    .values()
                    .slice(list.offset() * width, list.len() * width);
                let child = Box::new(Self::of(&values)?);
                Form::Fixed { width, child }
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                list_of(list.value_offsets(), list.values(), array)?
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                list_of(list.value_offsets(), list.values(), array)?
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let entries: ArrayRef = std::sync::Arc::new(map.entries().clone());
                list_of(map.value_offsets(), &entries, array)?
            }
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns();
                let parts = fields.iter().zip(columns);
                let parts =
                    parts.map(|(field, column)| Some((field.name().clone(), Self::of(column)?)));
                Form::Struct(parts.collect::<Option<_>>()?)
            }
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let plain = take(dictionary.values(), dictionary.keys(), None).ok()?;
                return Self::of(&plain);
            }
            _ => Form::Numbers(Numbers::of(array)?),
        };
        Some(Self {
            rows: array.len(),
            valid: valid(array),
            form,
        })
    }

    /// Whether a row has a value.
    pub fn is_valid(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid[row] != 0)
    }
}

/// A byte for each row of an array with nulls.
fn valid(array: &dyn Array) -> Option<Buffer> {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0)?;
    Some(nulls.iter().map(u8::from).collect::<Vec<_>>().into())
}

/// The rows' bytes of an array whose offsets and data are its first buffers.
fn bytes<O: Copy + Into<i64>>(offsets: &[O], array: &dyn Array) -> Form {
    let data = array.to_data();
    let (offsets, first, len) = from_first(offsets);
    Form::Bytes {
        offsets,
        bytes: data.buffers()[1].slice_with_length(first, len),
        is_text: matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8),
    }
}

/// Offsets that begin with 0, what the first was, and the last one.
fn from_first<O: Copy + Into<i64>>(offsets: &[O]) -> (Vec<i64>, usize, usize) {
    let first: i64 = offsets.first().map_or(0, |first| (*first).into());
    let offsets: Vec<i64> = offsets
        .iter()
        .map(|offset| (*offset).into() - first)
        .collect();
    let len = offsets.last().copied().unwrap_or(0);
    (offsets, first as usize, len as usize)
}

fn views<T: ByteViewType>(array: &dyn Array, is_text: bool) -> Form
where
    T::Native: AsRef<[u8]>,
{
    let array = array.as_byte_view::<T>();
    let (mut offsets, mut bytes) = (vec![0], Vec::new());
    for row in array {
        bytes.extend_from_slice(row.map_or(&[], AsRef::as_ref));
        offsets.push(bytes.len() as i64);
    }
    Form::Bytes {
        offsets,
        bytes: bytes.into(),
        is_text,
    }
}

fn decimals<T: DecimalType>(array: &dyn Array) -> Form {
    let array = array.as_primitive::<T>();
    let text = |row| match array.is_valid(row) {
        true => array.value_as_string(row),
        false => String::new(),
    };
    Form::Decimals((0..array.len()).map(text).collect())
}

fn fixed_binary(array: &dyn Array, width: usize) -> Form {
    let data = array.to_data();
    let values = data.buffers()[0].slice_with_length(data.offset() * width, array.len() * width);
    Form::Fixed {
        width,
        child: Box::new(Parts {
            rows: array.len() * width,
            valid: None,
            form: Form::Numbers(Numbers::bytes(values)),
        }),
    }
}

/// A list. Arrow allows values under a null row, which no row has then.
fn list_of<O: Copy + Into<i64>>(
    offsets: &[O],
    values: &ArrayRef,
    array: &dyn Array,
) -> Option<Form> {
    let (offsets, first, len) = from_first(offsets);
    let hidden = |row: usize| array.is_null(row) && offsets[row] < offsets[row + 1];
    if !(array.null_count() > 0 && (0..array.len()).any(hidden)) {
        let child = Box::new(Parts::of(&values.slice(first, len))?);
        return Some(Form::List { offsets, child });
    }
    let (mut seen, mut kept) = (vec![0], Vec::new());
    for row in 0..array.len() {
        if array.is_valid(row) {
            let range = offsets[row] as u64..offsets[row + 1] as u64;
            kept.extend(range.map(|at| first as u64 + at));
        }
        seen.push(kept.len() as i64);
    }
    let values = take(values, &arrow_array::UInt64Array::from(kept), None).ok()?;
    let (offsets, child) = (seen, Box::new(Parts::of(&values)?));
    Some(Form::List { offsets, child })
}

#[cfg(test)]
mod tests;

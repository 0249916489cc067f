//! Builds Arrow arrays around gathered values, without a copy.

use arrow_array::{ArrayRef, make_array};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

/// Whether offsets of `data_type` can address this many bytes (or list values).
pub(super) fn addressable(data_type: &DataType, end: usize) -> bool {
    match data_type {
        DataType::Binary | DataType::Utf8 | DataType::List(_) => i32::try_from(end).is_ok(),
        _ => true,
    }
}

/// Whether rows of this type may differ in length.
pub(super) fn has_offsets(data_type: &DataType) -> bool {
    use DataType::{Binary, LargeBinary, LargeList, LargeUtf8, List, Utf8};
    matches!(
        data_type,
        Binary | LargeBinary | Utf8 | LargeUtf8 | List(_) | LargeList(_)
    )
}

/// An array of `rows` rows of `size` bytes each.
///
/// # Panics
/// If the type has no fixed-width representation, or if its offsets cannot address the values.
pub(super) fn fixed(data_type: &DataType, rows: usize, size: usize, values: Buffer) -> ArrayRef {
    let array = ArrayData::builder(data_type.clone()).len(rows);
    let array = match data_type {
        DataType::Binary | DataType::Utf8 => array
            .add_buffer(uniform_offsets::<i32>(rows, size))
            .add_buffer(values),
        DataType::LargeBinary | DataType::LargeUtf8 => array
            .add_buffer(uniform_offsets::<i64>(rows, size))
            .add_buffer(values),
        DataType::List(field) => {
            let (child, length) = list(field.data_type(), rows, size, values);
            array
                .add_buffer(uniform_offsets::<i32>(rows, length))
                .add_child_data(child)
        }
        DataType::LargeList(field) => {
            let (child, length) = list(field.data_type(), rows, size, values);
            array
                .add_buffer(uniform_offsets::<i64>(rows, length))
                .add_child_data(child)
        }
        DataType::FixedSizeList(field, _) => {
            let (child, _) = list(field.data_type(), rows, size, values);
            array.add_child_data(child)
        }
        _ => array.add_buffer(values),
    };
    // SAFETY: The values are rows of `size` bytes, the offsets lie `size` apart, and strings are copies of
    // whole strings that were valid.
    make_array(unsafe { array.build_unchecked() })
}

/// An array of byte strings, strings, or lists of numbers. Row r ends at byte `ends[r]`, where the next row begins.
///
/// # Panics
/// If the type is another one, if its offsets cannot address the values, or if there is not one bit for each row.
pub(super) fn varying(
    data_type: &DataType,
    ends: &[usize],
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    assert!(
        nulls.as_ref().is_none_or(|nulls| nulls.len() == ends.len()),
        "one bit a row"
    );
    let unit = unit(data_type);
    let starts = || std::iter::once(0).chain(ends.iter().map(|end| end / unit));
    let offsets: Buffer = match data_type {
        DataType::Binary | DataType::Utf8 | DataType::List(_) => {
            starts().map(offset::<i32>).collect()
        }
        _ => starts().map(offset::<i64>).collect(),
    };
    let array = ArrayData::builder(data_type.clone())
        .len(ends.len())
        .nulls(nulls)
        .add_buffer(offsets);
    let array = match data_type {
        DataType::List(field) | DataType::LargeList(field) => {
            let (child, _) = list(field.data_type(), 1, values.len(), values);
            array.add_child_data(child)
        }
        _ => array.add_buffer(values),
    };
    // SAFETY: The offsets are ascending and end with the values; strings are copies of whole valid strings.
    make_array(unsafe { array.build_unchecked() })
}

/// Bytes that one step of the offsets of a type stands for.
///
/// # Panics
/// If it is the type of other lists than of numbers.
pub(super) fn unit(data_type: &DataType) -> usize {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) => {
            (field.data_type().primitive_width()).expect("a list of numbers")
        }
        _ => 1,
    }
}

/// List values as an array, and the number of values of a row.
fn list(data_type: &DataType, rows: usize, size: usize, values: Buffer) -> (ArrayData, usize) {
    let width = data_type.primitive_width().expect("a list of numbers");
    let child = ArrayData::builder(data_type.clone())
        .len(rows * size / width)
        .add_buffer(values);
    // SAFETY: Any bytes are numbers, and there are as many as rows need.
    (unsafe { child.build_unchecked() }, size / width)
}

/// Offsets of rows of `length` each.
fn uniform_offsets<O: TryFrom<usize> + arrow_buffer::ArrowNativeType>(
    rows: usize,
    length: usize,
) -> Buffer {
    (0..=rows).map(|row| offset::<O>(row * length)).collect()
}

fn offset<O: TryFrom<usize>>(offset: usize) -> O {
    O::try_from(offset).unwrap_or_else(|_| panic!("offset {offset} is too large"))
}

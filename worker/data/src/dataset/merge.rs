//! One schema for files that differ: all columns, with the widest type of each.
//!
//! A number may have another width in another file. It is converted to the widest type when its row group is decoded, so no value
//! changes. Integers do not become floats, since large ones would. A column of the type null, which writers use if all values are
//! null, has any type. All other types must be the same.

use std::{collections::BTreeMap, sync::Arc};

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray,
    cast::AsArray,
    new_null_array,
    types::{
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_schema::{DataType, Field, Fields};

use super::footer::DataFile;
use crate::error::{Error, Problem, Result};

/// The columns of all files; `None` if there is no file.
///
/// # Errors
/// If two types of a column cannot be merged.
pub(super) fn fields(files: &[DataFile]) -> Result<Option<Fields>> {
    let mut merged: Vec<Field> = Vec::new();
    // By name: the index of the column, how many files have it, and the first of them with this type.
    let mut known: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
    for (number, file) in files.iter().enumerate() {
        for found in file.metadata.schema().fields() {
            let Some((index, count, first)) = known.get_mut(found.name()) else {
                known.insert(found.name().clone(), (merged.len(), 1, number));
                merged.push(Field::clone(found));
                continue;
            };
            *count += 1;
            let field = &mut merged[*index];
            let Some(wider) = wider(field.data_type(), found.data_type()) else {
                return Err(Error::from(Problem::TypeDiffers {
                    expected: field.data_type().clone(),
                    found: found.data_type().clone(),
                    first: files[*first].info.name.clone(),
                })
                .in_column(found.name())
                .in_file(&file.info.name));
            };
            if wider != *field.data_type() {
                *first = number;
            }
            let is_nullable = field.is_nullable() || found.is_nullable();
            *field = (field.clone())
                .with_data_type(wider)
                .with_nullable(is_nullable);
        }
    }
    for (index, count, _) in known.values() {
        if *count < files.len() {
            merged[*index] = merged[*index].clone().with_nullable(true);
        }
    }
    Ok((!files.is_empty()).then(|| merged.into()))
}

/// The type that holds all values of both types.
fn wider(one: &DataType, other: &DataType) -> Option<DataType> {
    if one.equals_datatype(other) || *other == DataType::Null {
        return Some(one.clone());
    }
    if *one == DataType::Null {
        return Some(other.clone());
    }
    let of = |kind: &DataType| kind.primitive_width().unwrap_or(0);
    let (wide, narrow) = match of(one) >= of(other) {
        true => (one, other),
        false => (other, one),
    };
    let is_float = |kind: &DataType| kind.is_floating();
    let holds = (is_float(wide) && is_float(narrow))
        || (wide.is_signed_integer() && narrow.is_signed_integer())
        || (wide.is_unsigned_integer() && narrow.is_unsigned_integer())
        || (wide.is_signed_integer() && narrow.is_unsigned_integer() && of(wide) > of(narrow));
    holds.then(|| wide.clone())
}

/// An array of a file as one of the merged type. `None` if [`fields`] does not merge these types.
pub(crate) fn widen(array: ArrayRef, to: &DataType) -> Option<ArrayRef> {
    use DataType::{
        Float16, Float32, Float64, Int8, Int16, Int32, Int64, Null, UInt8, UInt16, UInt32, UInt64,
    };
    macro_rules! into {
        ($from:ty, $to:ty) => {
            convert::<$from, $to>(&array, |value| value.into())
        };
    }
    Some(match (array.data_type(), to) {
        (from, to) if from.equals_datatype(to) => array,
        (Null, to) => new_null_array(to, array.len()),
        (Int8, Int16) => into!(Int8Type, Int16Type),
        (Int8, Int32) => into!(Int8Type, Int32Type),
        (Int8, Int64) => into!(Int8Type, Int64Type),
        (Int16, Int32) => into!(Int16Type, Int32Type),
        (Int16, Int64) => into!(Int16Type, Int64Type),
        (Int32, Int64) => into!(Int32Type, Int64Type),
        (UInt8, UInt16) => into!(UInt8Type, UInt16Type),
        (UInt8, UInt32) => into!(UInt8Type, UInt32Type),
        (UInt8, UInt64) => into!(UInt8Type, UInt64Type),
        (UInt16, UInt32) => into!(UInt16Type, UInt32Type),
        (UInt16, UInt64) => into!(UInt16Type, UInt64Type),
        (UInt32, UInt64) => into!(UInt32Type, UInt64Type),
        (UInt8, Int16) => into!(UInt8Type, Int16Type),
        (UInt8, Int32) => into!(UInt8Type, Int32Type),
        (UInt8, Int64) => into!(UInt8Type, Int64Type),
        (UInt16, Int32) => into!(UInt16Type, Int32Type),
        (UInt16, Int64) => into!(UInt16Type, Int64Type),
        (UInt32, Int64) => into!(UInt32Type, Int64Type),
        (Float16, Float32) => into!(Float16Type, Float32Type),
        (Float16, Float64) => into!(Float16Type, Float64Type),
        (Float32, Float64) => into!(Float32Type, Float64Type),
        _ => return None,
    })
}

fn convert<From: ArrowPrimitiveType, To: ArrowPrimitiveType>(
    array: &ArrayRef,
    value: impl Fn(From::Native) -> To::Native,
) -> ArrayRef {
    let array: &PrimitiveArray<From> = array.as_primitive();
    Arc::new(array.unary::<_, To>(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [DataType; 11] = [
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
    ];

    #[test]
    fn what_is_merged_can_be_converted() {
        let null = [DataType::Null, DataType::Utf8];
        let all = || NUMBERS.iter().chain(&null);
        for one in all() {
            for other in all() {
                assert_eq!(wider(one, other), wider(other, one), "{one} {other}");
                let Some(merged) = wider(one, other) else {
                    continue;
                };
                for from in [one, other] {
                    let array = widen(new_null_array(from, 3), &merged).unwrap();
                    assert_eq!(
                        (array.data_type(), array.len(), array.logical_null_count()),
                        (&merged, 3, 3)
                    );
                }
            }
        }
    }

    #[test]
    fn a_type_that_does_not_hold_all_values_is_none() {
        use DataType::{Float32, Float64, Int32, Int64, UInt32, UInt64, Utf8};
        assert_eq!(wider(&Int32, &Int64), Some(Int64));
        assert_eq!(wider(&UInt32, &Int64), Some(Int64));
        for (one, other) in [
            (UInt64, Int64),
            (UInt32, Int32),
            (Int32, Float64),
            (Int64, Utf8),
        ] {
            assert_eq!(wider(&one, &other), None, "{one} {other}");
        }
        assert_eq!(wider(&Float64, &Float32), Some(Float64));
    }
}

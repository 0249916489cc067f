//! Compares each row of a column with a value.

use std::cmp::Ordering;

use arrow_array::{Array, ArrayRef, BooleanArray, cast::AsArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer};
use arrow_schema::{DataType, IntervalUnit};

use super::{Comparison, Value};

impl Comparison {
    /// Whether the comparison is true for two values of this order. NaN has no order.
    pub(super) fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// Whether `holds` is true for the order of each row to `value`. The result is arbitrary for null rows. `None` if the
/// types cannot be compared.
pub(super) fn compare_rows(
    array: &ArrayRef,
    value: &Value,
    holds: &dyn Fn(Option<Ordering>) -> bool,
) -> Option<BooleanBuffer> {
    use DataType::{
        Binary, Boolean, Date32, Date64, Duration, Float32, Float64, Int8, Int16, Int32, Int64,
        Interval, LargeBinary, LargeUtf8, Time32, Time64, Timestamp, UInt8, UInt16, UInt32, UInt64,
        Utf8, Utf8View,
    };
    let each = |order: &dyn Fn(usize) -> Option<Ordering>| {
        BooleanBuffer::collect_bool(array.len(), |row| holds(order(row)))
    };
    Some(match (array.data_type(), value) {
        (Boolean, Value::Bool(value)) => {
            let array: &BooleanArray = array.as_boolean();
            each(&|row| Some(array.value(row).cmp(value)))
        }
        (Int8, _) => number::<i8>(array, value, holds)?,
        (Int16, _) => number::<i16>(array, value, holds)?,
        (Int32 | Date32 | Time32(_) | Interval(IntervalUnit::YearMonth), _) => {
            number::<i32>(array, value, holds)?
        }
        (Int64 | Date64 | Time64(_) | Timestamp(..) | Duration(_), _) => {
            number::<i64>(array, value, holds)?
        }
        (UInt8, _) => number::<u8>(array, value, holds)?,
        (UInt16, _) => number::<u16>(array, value, holds)?,
        (UInt32, _) => number::<u32>(array, value, holds)?,
        (UInt64, _) => number::<u64>(array, value, holds)?,
        (Float32, _) => number::<f32>(array, value, holds)?,
        (Float64, _) => number::<f64>(array, value, holds)?,
        (Utf8, Value::Text(value)) => {
            let array = array.as_string::<i32>();
            each(&|row| Some(array.value(row).cmp(value)))
        }
        (LargeUtf8, Value::Text(value)) => {
            let array = array.as_string::<i64>();
            each(&|row| Some(array.value(row).cmp(value)))
        }
        (Utf8View, Value::Text(value)) => {
            let array = array.as_string_view();
            each(&|row| Some(array.value(row).cmp(value)))
        }
        (Binary, Value::Bytes(value)) => {
            let array = array.as_binary::<i32>();
            each(&|row| Some(array.value(row).cmp(value)))
        }
        (LargeBinary, Value::Bytes(value)) => {
            let array = array.as_binary::<i64>();
            each(&|row| Some(array.value(row).cmp(value)))
        }
        _ => return None,
    })
}

/// A numeric type of a column.
trait Number: ArrowNativeType {
    /// The exact order to a value. The outer `None` means that the value is not a number.
    fn compare(self, value: &Value) -> Option<Option<Ordering>>;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            #[inline]
            fn compare(self, value: &Value) -> Option<Option<Ordering>> {
                match value {
                    Value::Int(value) => Some(Some(i128::from(self).cmp(&i128::from(*value)))),
                    Value::Float(value) => Some(compare_to_float(i128::from(self), *value)),
                    _ => None,
                }
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Number for $type {
            #[inline]
            fn compare(self, value: &Value) -> Option<Option<Ordering>> {
                match value {
                    Value::Int(value) => {
                        Some(compare_to_float(i128::from(*value), f64::from(self)).map(Ordering::reverse))
                    }
                    Value::Float(value) => Some(f64::from(self).partial_cmp(value)),
                    _ => None,
                }
            }
        }
    )*};
}

floats!(f32, f64);

/// The order of a 64-bit integer to a float, without rounding the integer.
fn compare_to_float(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // The cast saturates far beyond 64 bits. The fraction only decides between equal integers.
    let whole = float.trunc() as i128;
    Some(
        integer
            .cmp(&whole)
            .then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)),
    )
}

fn number<T: Number>(
    array: &ArrayRef,
    value: &Value,
    holds: &dyn Fn(Option<Ordering>) -> bool,
) -> Option<BooleanBuffer> {
    T::default().compare(value)?;
    let data = array.to_data();
    let values = &data.buffers()[0].typed_data::<T>()[data.offset()..data.offset() + data.len()];
    Some(BooleanBuffer::collect_bool(values.len(), |row| {
        holds(values[row].compare(value).flatten())
    }))
}

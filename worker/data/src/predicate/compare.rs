//! Compares each row of a column with a value.

use std::cmp::Ordering;

use arrow_array::{Array, ArrayRef, BooleanArray, Decimal256Array, cast::AsArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer};
use arrow_schema::{DataType, IntervalUnit};

use super::{Comparison, Decimal, Value, decimal::Threshold};

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
        Binary, Boolean, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Duration,
        Float32, Float64, Int8, Int16, Int32, Int64, Interval, LargeBinary, LargeUtf8, Time32,
        Time64, Timestamp, UInt8, UInt16, UInt32, UInt64, Utf8, Utf8View,
    };
    let each = |order: &dyn Fn(usize) -> Option<Ordering>| {
        BooleanBuffer::collect_bool(array.len(), |row| holds(order(row)))
    };
    let integer = || Operand::at_scale(value, 0);
    let decimal = |scale: i8| Operand::at_scale(value, scale.into());
    Some(match (array.data_type(), value) {
        (Boolean, Value::Bool(value)) => {
            let array: &BooleanArray = array.as_boolean();
            each(&|row| Some(array.value(row).cmp(value)))
        }
        (Int8, _) => number::<i8>(array, integer()?, holds),
        (Int16, _) => number::<i16>(array, integer()?, holds),
        (Int32 | Date32 | Time32(_) | Interval(IntervalUnit::YearMonth), _) => {
            number::<i32>(array, integer()?, holds)
        }
        (Int64 | Date64 | Time64(_) | Timestamp(..) | Duration(_), _) => {
            number::<i64>(array, integer()?, holds)
        }
        (UInt8, _) => number::<u8>(array, integer()?, holds),
        (UInt16, _) => number::<u16>(array, integer()?, holds),
        (UInt32, _) => number::<u32>(array, integer()?, holds),
        (UInt64, _) => number::<u64>(array, integer()?, holds),
        (Float32, _) => number::<f32>(array, Operand::for_floats(value)?, holds),
        (Float64, _) => number::<f64>(array, Operand::for_floats(value)?, holds),
        (Decimal32(_, scale), _) => number::<i32>(array, decimal(*scale)?, holds),
        (Decimal64(_, scale), _) => number::<i64>(array, decimal(*scale)?, holds),
        (Decimal128(_, scale), _) => number::<i128>(array, decimal(*scale)?, holds),
        (Decimal256(_, scale), _) => wide(array.as_primitive(), value, (*scale).into(), holds)?,
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

/// A number, ready to be compared with those of a column.
#[derive(Clone, Copy, Debug)]
enum Operand {
    /// `whole`, or a number between it and the next integer.
    Integer {
        whole: i128,
        is_between: bool,
    },
    Float(f64),
}

impl Operand {
    /// For the unscaled values of decimals with a scale, and for integers, whose scale is 0. `None` if it is not a number.
    fn at_scale(value: &Value, scale: i32) -> Option<Self> {
        let decimal = match value {
            Value::Int(value) => Decimal::from(*value),
            Value::Float(value) if scale == 0 => return Some(Self::Float(*value)),
            Value::Float(value) => match Decimal::from_float(*value) {
                Some(decimal) => decimal,
                None => return Some(Self::Float(*value)),
            },
            Value::Decimal(value) => *value,
            _ => return None,
        };
        let Threshold { whole, is_between } = decimal.threshold(scale);
        // Numbers of columns with 128 bits have at most 38 digits, and are between these limits.
        let limit = match whole.is_negative() {
            true => i128::MIN,
            false => i128::MAX,
        };
        Some(Self::Integer {
            whole: whole.to_i128().unwrap_or(limit),
            is_between,
        })
    }

    /// For floats.
    fn for_floats(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Int(value) => Self::Integer {
                whole: (*value).into(),
                is_between: false,
            },
            Value::Float(value) => Self::Float(*value),
            Value::Decimal(value) => Self::Float(value.to_float()),
            _ => return None,
        })
    }
}

/// A numeric type of a column.
trait Number: ArrowNativeType {
    /// The exact order to a number.
    fn compare(self, operand: Operand) -> Option<Ordering>;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            #[inline]
            fn compare(self, operand: Operand) -> Option<Ordering> {
                match operand {
                    Operand::Integer { whole, is_between } => {
                        Some(order_to(&i128::from(self), &whole, is_between))
                    }
                    Operand::Float(value) => compare_to_float(i128::from(self), value),
                }
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Number for $type {
            #[inline]
            fn compare(self, operand: Operand) -> Option<Ordering> {
                match operand {
                    Operand::Integer { whole, .. } => {
                        compare_to_float(whole, f64::from(self)).map(Ordering::reverse)
                    }
                    Operand::Float(value) => f64::from(self).partial_cmp(&value),
                }
            }
        }
    )*};
}

floats!(f32, f64);

/// The order of an integer to another one, or to a number between that and the next one.
pub(super) fn order_to<T: Ord>(integer: &T, whole: &T, is_between: bool) -> Ordering {
    let at_equal = match is_between {
        true => Ordering::Less,
        false => Ordering::Equal,
    };
    integer.cmp(whole).then(at_equal)
}

/// The order of an integer to a float, without rounding the integer.
fn compare_to_float(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // The cast saturates far beyond the numbers of columns. The fraction only decides between equal integers.
    let whole = float.trunc() as i128;
    Some(
        integer
            .cmp(&whole)
            .then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)),
    )
}

fn number<T: Number>(
    array: &ArrayRef,
    operand: Operand,
    holds: &dyn Fn(Option<Ordering>) -> bool,
) -> BooleanBuffer {
    let data = array.to_data();
    let values = &data.buffers()[0].typed_data::<T>()[data.offset()..data.offset() + data.len()];
    BooleanBuffer::collect_bool(values.len(), |row| holds(values[row].compare(operand)))
}

/// Decimals of 256 bits.
fn wide(
    array: &Decimal256Array,
    value: &Value,
    scale: i32,
    holds: &dyn Fn(Option<Ordering>) -> bool,
) -> Option<BooleanBuffer> {
    let decimal = match value {
        Value::Int(value) => Some(Decimal::from(*value)),
        Value::Float(value) => Decimal::from_float(*value),
        Value::Decimal(value) => Some(*value),
        _ => return None,
    };
    let Some(decimal) = decimal else {
        // Infinity is beyond all values, and NaN has no order.
        let operand = Operand::Float(match value {
            Value::Float(value) => *value,
            _ => return None,
        });
        return Some(BooleanBuffer::collect_bool(array.len(), |_| {
            holds(0_i128.compare(operand))
        }));
    };
    let Threshold { whole, is_between } = decimal.threshold(scale);
    Some(BooleanBuffer::collect_bool(array.len(), |row| {
        holds(Some(order_to(&array.value(row), &whole, is_between)))
    }))
}

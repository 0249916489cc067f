//! Which rows a predicate is true for.

use std::cmp::Ordering;

use arrow_array::{Array, ArrayRef, BooleanArray, cast::AsArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, IntervalUnit};
use arrow_select::take::take;

use super::{Comparison, Predicate, Value};
use crate::error::{Error, Problem, Result};

/// The rows of `rows` that a predicate is true for. `column` gives a column by its name.
///
/// # Errors
/// A column whose type cannot be compared with the value.
pub(crate) fn evaluate(
    predicate: &Predicate,
    rows: usize,
    column: &dyn Fn(&str) -> Option<ArrayRef>,
) -> Result<BooleanBuffer> {
    Ok(truth(predicate, rows, column)?.yes)
}

/// For each row whether a condition is true, or false; where it is neither, it is unknown.
struct Truth {
    yes: BooleanBuffer,
    no: BooleanBuffer,
}

fn truth(
    predicate: &Predicate,
    rows: usize,
    column: &dyn Fn(&str) -> Option<ArrayRef>,
) -> Result<Truth> {
    let all = || BooleanBuffer::new_set(rows);
    let none = || BooleanBuffer::new_unset(rows);
    match predicate {
        Predicate::Compare {
            column: name,
            comparison,
            value,
        } => compare(name, &array(name, column)?, *comparison, value),
        Predicate::In {
            column: name,
            values,
        } => {
            let array = array(name, column)?;
            let mut any = Truth {
                yes: none(),
                no: known(&array),
            };
            for value in values {
                let equal = compare(name, &array, Comparison::Equal, value)?;
                any = Truth {
                    yes: &any.yes | &equal.yes,
                    no: &any.no & &equal.no,
                };
            }
            Ok(any)
        }
        Predicate::IsNull { column: name } => {
            let there = known(&array(name, column)?);
            Ok(Truth {
                yes: !&there,
                no: there,
            })
        }
        Predicate::Not(inner) => {
            let Truth { yes, no } = truth(inner, rows, column)?;
            Ok(Truth { yes: no, no: yes })
        }
        Predicate::And(parts) => parts.iter().try_fold(
            Truth {
                yes: all(),
                no: none(),
            },
            |all, part| {
                let part = truth(part, rows, column)?;
                Ok(Truth {
                    yes: &all.yes & &part.yes,
                    no: &all.no | &part.no,
                })
            },
        ),
        Predicate::Or(parts) => parts.iter().try_fold(
            Truth {
                yes: none(),
                no: all(),
            },
            |any, part| {
                let part = truth(part, rows, column)?;
                Ok(Truth {
                    yes: &any.yes | &part.yes,
                    no: &any.no & &part.no,
                })
            },
        ),
    }
}

fn array(name: &str, column: &dyn Fn(&str) -> Option<ArrayRef>) -> Result<ArrayRef> {
    column(name).ok_or_else(|| {
        let known = "not in this row group".to_owned();
        Error::from(Problem::NoSuchColumn { known }).in_column(name)
    })
}

/// The rows that have a value.
fn known(array: &ArrayRef) -> BooleanBuffer {
    array.logical_nulls().map_or_else(
        || BooleanBuffer::new_set(array.len()),
        NullBuffer::into_inner,
    )
}

fn compare(name: &str, array: &ArrayRef, comparison: Comparison, value: &Value) -> Result<Truth> {
    let bad = || {
        Error::from(Problem::BadPredicate {
            found: array.data_type().clone(),
            value: value.to_string(),
        })
        .in_column(name)
    };
    let array = flat(array).ok_or_else(bad)?;
    let yes = ordered(&array, value, &|order| comparison.holds(order)).ok_or_else(bad)?;
    let known = known(&array);
    Ok(Truth {
        yes: &yes & &known,
        no: &!&yes & &known,
    })
}

/// Dictionaries written out.
fn flat(array: &ArrayRef) -> Option<ArrayRef> {
    match array.as_any_dictionary_opt() {
        Some(dictionary) => take(dictionary.values(), dictionary.keys(), None).ok(),
        None => Some(array.clone()),
    }
}

impl Comparison {
    /// Whether it holds for two values in this order; NaN has none.
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

/// For each row whether `holds` for its order to `value`; arbitrary where the row has no value. Nothing if
/// the types cannot be compared.
fn ordered(
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

/// A number of a column.
trait Number: ArrowNativeType {
    /// Its order to a value, exactly. Outer nothing if the value is no number.
    fn order(self, value: &Value) -> Option<Option<Ordering>>;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            #[inline]
            fn order(self, value: &Value) -> Option<Option<Ordering>> {
                match value {
                    Value::Int(value) => Some(Some(i128::from(self).cmp(&i128::from(*value)))),
                    Value::Float(value) => Some(order_to_float(i128::from(self), *value)),
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
            fn order(self, value: &Value) -> Option<Option<Ordering>> {
                match value {
                    Value::Int(value) => {
                        Some(order_to_float(i128::from(*value), f64::from(self)).map(Ordering::reverse))
                    }
                    Value::Float(value) => Some(f64::from(self).partial_cmp(value)),
                    _ => None,
                }
            }
        }
    )*};
}

floats!(f32, f64);

/// The order of an integer of 64 bits to a float, without rounding the integer.
fn order_to_float(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // A cast saturates, far beyond 64 bits; what it cuts off decides only between equals.
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
    T::default().order(value)?;
    let data = array.to_data();
    let values = &data.buffers()[0].typed_data::<T>()[data.offset()..data.offset() + data.len()];
    Some(BooleanBuffer::collect_bool(values.len(), |row| {
        holds(values[row].order(value).flatten())
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, StringArray, UInt8Array};

    use super::*;

    fn column(name: &str) -> Option<ArrayRef> {
        Some(match name {
            "x" => Arc::new(Int64Array::from(vec![
                Some(1),
                None,
                Some(3),
                Some(i64::MAX),
            ])) as ArrayRef,
            "f" => Arc::new(Float64Array::from(vec![
                Some(-0.0),
                Some(f64::NAN),
                None,
                Some(2.5),
            ])),
            "s" => Arc::new(StringArray::from(vec![
                Some("a"),
                Some("b"),
                Some("b"),
                None,
            ])),
            "u" => Arc::new(UInt8Array::from(vec![0, 1, 2, 255])),
            _ => return None,
        })
    }

    fn rows(predicate: &Predicate) -> Vec<usize> {
        evaluate(predicate, 4, &column)
            .unwrap()
            .set_indices()
            .collect()
    }

    fn is(column: &str, comparison: Comparison, value: Value) -> Predicate {
        Predicate::Compare {
            column: column.to_owned(),
            comparison,
            value,
        }
    }

    #[test]
    fn a_missing_value_is_neither_equal_nor_unequal() {
        use Comparison::{Equal, GreaterOrEqual, NotEqual};
        assert_eq!(rows(&is("x", Equal, Value::Int(3))), [2]);
        assert_eq!(rows(&is("x", NotEqual, Value::Int(3))), [0, 3]);
        assert_eq!(
            rows(&Predicate::Not(Box::new(is("x", Equal, Value::Int(3))))),
            [0, 3]
        );
        assert_eq!(
            rows(&Predicate::IsNull {
                column: "x".to_owned()
            }),
            [1]
        );
        let either = Predicate::Or(vec![
            is("x", GreaterOrEqual, Value::Int(3)),
            is("s", Equal, Value::Text("b".to_owned())),
        ]);
        assert_eq!(rows(&either), [1, 2, 3]);
        let both = Predicate::And(vec![
            is("x", GreaterOrEqual, Value::Int(3)),
            is("s", Equal, Value::Text("b".to_owned())),
        ]);
        assert_eq!(rows(&both), [2]);
        assert_eq!(rows(&Predicate::Not(Box::new(both))), [0]);
        assert_eq!(rows(&Predicate::And(vec![])), [0, 1, 2, 3]);
        assert_eq!(rows(&Predicate::Or(vec![])), [] as [usize; 0]);
    }

    #[test]
    fn one_of_several_values() {
        let one_of = |column: &str, values: &[Value]| Predicate::In {
            column: column.to_owned(),
            values: values.to_vec(),
        };
        assert_eq!(
            rows(&one_of("x", &[Value::Int(1), Value::Int(3), Value::Int(9)])),
            [0, 2]
        );
        assert_eq!(rows(&one_of("x", &[])), [] as [usize; 0]);
        assert_eq!(
            rows(&Predicate::Not(Box::new(one_of("x", &[Value::Int(1)])))),
            [2, 3]
        );
    }

    #[test]
    fn numbers_are_compared_exactly_and_nan_with_nothing() {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, NotEqual};
        assert_eq!(rows(&is("f", Equal, Value::Int(0))), [0]);
        assert_eq!(rows(&is("f", Greater, Value::Int(2))), [3]);
        assert_eq!(rows(&is("f", Less, Value::Float(1e9))), [0, 3]);
        assert_eq!(rows(&is("f", NotEqual, Value::Float(2.5))), [0, 1]);
        // 2^63 as a float is one more than the largest integer.
        assert_eq!(
            rows(&is("x", GreaterOrEqual, Value::Float(i64::MAX as f64))),
            [] as [usize; 0]
        );
        assert_eq!(rows(&is("x", Less, Value::Float(3.5))), [0, 2]);
        assert_eq!(rows(&is("x", Greater, Value::Float(2.5))), [2, 3]);
        assert_eq!(
            rows(&is("x", Greater, Value::Float(f64::NEG_INFINITY))),
            [0, 2, 3]
        );
        assert_eq!(rows(&is("u", Less, Value::Int(300))), [0, 1, 2, 3]);
        assert_eq!(rows(&is("u", Greater, Value::Int(-1))), [0, 1, 2, 3]);
    }

    #[test]
    fn types_that_cannot_be_compared_are_named() {
        let error = evaluate(&is("s", Comparison::Less, Value::Int(1)), 4, &column).unwrap_err();
        assert_eq!(
            error.to_string(),
            "column s: cannot compare a column of type Utf8 with 1"
        );
        let error = evaluate(
            &is("x", Comparison::Less, Value::Text("a".to_owned())),
            4,
            &column,
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "column x: cannot compare a column of type Int64 with \"a\""
        );
    }
}

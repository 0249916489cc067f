//! Evaluates a predicate for each row.

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_select::take::take;

use super::{Comparison, Predicate, Value, compare::compare_rows};
use crate::error::{Error, Problem, Result};

/// The rows for which a predicate is true. `column` returns a column by name.
///
/// # Errors
/// If a column cannot be compared with the value.
pub(crate) fn evaluate(
    predicate: &Predicate,
    rows: usize,
    column: &dyn Fn(&str) -> Option<ArrayRef>,
) -> Result<BooleanBuffer> {
    Ok(truth(predicate, rows, column)?.yes)
}

/// For each row, whether a condition is true or false. If neither is set, it is unknown.
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
            let present = known(&array(name, column)?);
            Ok(Truth {
                yes: !&present,
                no: present,
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

/// The rows that are not null.
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
    let yes = compare_rows(&array, value, &|order| comparison.holds(order)).ok_or_else(bad)?;
    let known = known(&array);
    Ok(Truth {
        yes: &yes & &known,
        no: &!&yes & &known,
    })
}

/// Expands dictionaries.
fn flat(array: &ArrayRef) -> Option<ArrayRef> {
    match array.as_any_dictionary_opt() {
        Some(dictionary) => take(dictionary.values(), dictionary.keys(), None).ok(),
        None => Some(array.clone()),
    }
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

//! Conditions on rows in the format of pyarrow's filters: a list of (column, operator, value) that must all be true,
//! or a list of such lists of which one must be true.

use elasticrun_data::{Comparison, Predicate, Value};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple},
};

/// Parses the argument `where`.
pub(super) fn read(given: &Bound<'_, PyAny>) -> PyResult<Predicate> {
    let list: Vec<Bound<'_, PyAny>> = given.extract().map_err(|_| {
        PyTypeError::new_err(
            "where must be a list of (column, operator, value), or a list of such lists",
        )
    })?;
    if !list.is_empty() && list.iter().all(|part| part.is_instance_of::<PyList>()) {
        return Ok(Predicate::Or(
            list.iter().map(read).collect::<PyResult<_>>()?,
        ));
    }
    Ok(Predicate::And(
        list.iter().map(term).collect::<PyResult<_>>()?,
    ))
}

fn term(given: &Bound<'_, PyAny>) -> PyResult<Predicate> {
    let bad = || PyValueError::new_err(format!("where: {given:?} is no (column, operator, value)"));
    let tuple = given.cast::<PyTuple>().map_err(|_| bad())?;
    let (column, operator, with): (String, String, Bound<'_, PyAny>) =
        tuple.extract().map_err(|_| bad())?;
    let compare = |comparison| {
        let value = value(&with)?;
        Ok(Predicate::Compare {
            column: column.clone(),
            comparison,
            value,
        })
    };
    match operator.as_str() {
        "==" | "=" if with.is_none() => Ok(Predicate::IsNull { column }),
        "!=" if with.is_none() => Ok(Predicate::Not(Box::new(Predicate::IsNull { column }))),
        "==" | "=" => compare(Comparison::Equal),
        "!=" => compare(Comparison::NotEqual),
        "<" => compare(Comparison::Less),
        "<=" => compare(Comparison::LessOrEqual),
        ">" => compare(Comparison::Greater),
        ">=" => compare(Comparison::GreaterOrEqual),
        "in" | "not in" => {
            let values = with
                .try_iter()?
                .map(|one| value(&one?))
                .collect::<PyResult<_>>()?;
            let is_in = Predicate::In { column, values };
            Ok(if operator == "in" {
                is_in
            } else {
                Predicate::Not(Box::new(is_in))
            })
        }
        _ => Err(PyValueError::new_err(format!(
            "where: operator {operator:?} must be one of ==, !=, <, <=, >, >=, in, not in"
        ))),
    }
}

fn value(given: &Bound<'_, PyAny>) -> PyResult<Value> {
    let is_scalar = |given: &Bound<'_, PyAny>| -> PyResult<bool> {
        Ok(given.hasattr("dtype")? && given.getattr("ndim")?.extract::<usize>()? == 0)
    };
    if is_scalar(given)? {
        let item = given.call_method0("item")?;
        if !is_scalar(&item)? {
            return value(&item);
        }
    }
    // In Python a bool is an int.
    if given.is_instance_of::<PyBool>() {
        Ok(Value::Bool(given.extract()?))
    } else if given.is_instance_of::<PyInt>() {
        let number = given
            .extract()
            .map_err(|_| PyValueError::new_err(format!("where: {given} has more than 64 bits")))?;
        Ok(Value::Int(number))
    } else if given.is_instance_of::<PyFloat>() {
        Ok(Value::Float(given.extract()?))
    } else if given.is_instance_of::<PyString>() {
        Ok(Value::Text(given.extract()?))
    } else if given.is_instance_of::<PyBytes>() {
        Ok(Value::Bytes(given.extract()?))
    } else {
        Err(PyTypeError::new_err(format!(
            "where: {given:?} must be a truth value, a number, a string or bytes"
        )))
    }
}

//! Conditions on rows in the format of pyarrow's filters: a list of (column, operator, value) that must all be true,
//! or a list of such lists of which one must be true. Or an expression of pyarrow, alone or in place of a condition.

use arrow_schema::{DataType, Schema, TimeUnit};
use elasticrun_data::{Comparison, Dataset, Decimal, Predicate, Value};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};

/// Parses the argument `where`, for the columns of a data set.
pub(super) fn read(dataset: &Dataset, given: &Bound<'_, PyAny>) -> PyResult<Predicate> {
    parse(dataset.schema().map(AsRef::as_ref), given)
}

fn parse(schema: Option<&Schema>, given: &Bound<'_, PyAny>) -> PyResult<Predicate> {
    if is_expression(given)? {
        return term(schema, given);
    }
    let list: Vec<Bound<'_, PyAny>> = given.extract().map_err(|_| {
        PyTypeError::new_err(
            "where must be a list of (column, operator, value), a list of such lists, or an expression of pyarrow",
        )
    })?;
    if !list.is_empty() && list.iter().all(|part| part.is_instance_of::<PyList>()) {
        return all(&list, |part| parse(schema, part)).map(Predicate::Or);
    }
    all(&list, |part| term(schema, part)).map(Predicate::And)
}

fn all(
    list: &[Bound<'_, PyAny>],
    parse: impl Fn(&Bound<'_, PyAny>) -> PyResult<Predicate>,
) -> PyResult<Vec<Predicate>> {
    list.iter().map(parse).collect()
}

/// A tuple, an expression of pyarrow, or what `expressions.py` makes of one.
fn term(schema: Option<&Schema>, given: &Bound<'_, PyAny>) -> PyResult<Predicate> {
    if is_expression(given)? {
        let expressions = given.py().import("elasticrun.data.expressions")?;
        return term(schema, &expressions.call_method1("condition", (given,))?);
    }
    let bad = || PyValueError::new_err(format!("where: {given:?} is no (column, operator, value)"));
    if let Ok(parts) = given.cast::<PyDict>() {
        if let Some(part) = parts.get_item("not")? {
            return Ok(Predicate::Not(Box::new(term(schema, &part)?)));
        }
        let list = |name: &str| -> PyResult<Option<Vec<Bound<'_, PyAny>>>> {
            parts.get_item(name)?.map(|list| list.extract()).transpose()
        };
        if let Some(list) = list("and")? {
            return all(&list, |part| term(schema, part)).map(Predicate::And);
        }
        let list = list("or")?.ok_or_else(bad)?;
        return all(&list, |part| term(schema, part)).map(Predicate::Or);
    }
    let tuple = given.cast::<PyTuple>().map_err(|_| bad())?;
    let (column, operator, with): (String, String, Bound<'_, PyAny>) =
        tuple.extract().map_err(|_| bad())?;
    let field = schema.and_then(|schema| schema.field_with_name(&column).ok());
    let kind = field.map(|field| field.data_type());
    let compare = |comparison| {
        let value = value(kind, &with)?;
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
                .map(|one| value(kind, &one?))
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

/// Whether it is an expression of pyarrow.
fn is_expression(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    is_of_pyarrow(given, "Expression")
}

/// Whether it is an object of a class of pyarrow. pyarrow is not imported for it.
fn is_of_pyarrow(given: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    for class in given.get_type().mro() {
        let class = class.cast::<pyo3::types::PyType>()?;
        if class.name()? == name && class.module()?.to_str()?.starts_with("pyarrow.") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The kind of a column of dates or times, and the nanoseconds of its unit.
fn times(kind: &DataType) -> Option<(&'static str, u64)> {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    };
    Some(match kind {
        DataType::Date32 => ("date", 86_400_000_000_000),
        DataType::Date64 => ("date", 1_000_000),
        DataType::Timestamp(of, None) => ("timestamp", unit(of)),
        DataType::Timestamp(of, Some(_)) => ("timestamp with a time zone", unit(of)),
        DataType::Time32(of) | DataType::Time64(of) => ("time", unit(of)),
        DataType::Duration(of) => ("duration", unit(of)),
        _ => return None,
    })
}

fn value(kind: Option<&DataType>, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    if is_of_pyarrow(given, "Scalar")? {
        let expressions = given.py().import("elasticrun.data.expressions")?;
        let plain = expressions.call_method1("plain", (given,))?;
        if !is_of_pyarrow(&plain, "Scalar")? {
            return value(kind, &plain);
        }
    }
    // Numbers are in the unit of the column.
    let is_number = given.is_instance_of::<PyInt>() || given.is_instance_of::<PyFloat>();
    let is_number = is_number || given.hasattr("dtype")? && is_numeric(given)?;
    if let Some((kind, unit)) = kind.and_then(times).filter(|_| !is_number) {
        let instants = given.py().import("elasticrun.data.instants")?;
        let count = instants.call_method1("in_unit", (given, kind, unit))?;
        return value(None, &count);
    }
    let is_scalar = |given: &Bound<'_, PyAny>| -> PyResult<bool> {
        Ok(given.hasattr("dtype")? && given.getattr("ndim")?.extract::<usize>()? == 0)
    };
    if is_scalar(given)? {
        let item = given.call_method0("item")?;
        if !is_scalar(&item)? {
            return value(None, &item);
        }
    }
    // In Python a bool is an int.
    if given.is_instance_of::<PyBool>() {
        Ok(Value::Bool(given.extract()?))
    } else if given.is_instance_of::<PyInt>() {
        match given.extract() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => decimal(&class_decimal(given.py())?.call1((given,))?),
        }
    } else if given.is_instance_of::<PyFloat>() {
        Ok(Value::Float(given.extract()?))
    } else if given.is_instance_of::<PyString>() {
        Ok(Value::Text(given.extract()?))
    } else if given.is_instance_of::<PyBytes>() {
        Ok(Value::Bytes(given.extract()?))
    } else if given.is_instance(&class_decimal(given.py())?)? {
        decimal(given)
    } else {
        Err(PyTypeError::new_err(format!(
            "where: {given:?} must be a truth value, a number, a string or bytes, or for dates and times one of those"
        )))
    }
}

/// Whether a scalar of NumPy is a number.
fn is_numeric(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let kind: String = given.getattr("dtype")?.getattr("kind")?.extract()?;
    Ok(matches!(&*kind, "b" | "i" | "u" | "f"))
}

fn class_decimal(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("decimal")?.getattr("Decimal")
}

/// A `decimal.Decimal`.
fn decimal(given: &Bound<'_, PyAny>) -> PyResult<Value> {
    if given.call_method0("is_infinite")?.extract()? {
        return Ok(Value::Float(given.call_method0("__float__")?.extract()?));
    }
    let bad = |why: &str| PyValueError::new_err(format!("where: {given} {why}"));
    if given.call_method0("is_nan")?.extract()? {
        return Err(bad("is no number"));
    }
    let (sign, digits, exponent): (u8, Vec<u8>, i32) = given
        .call_method0("as_tuple")?
        .extract()
        .map_err(|_| bad("is out of range"))?;
    Decimal::from_digits(sign == 1, &digits, exponent)
        .map(Value::Decimal)
        .ok_or_else(|| bad("has more than 76 digits"))
}

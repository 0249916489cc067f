//! Converts columns that are not plain memory to Python objects.

use arrow_array::{
    Array,
    cast::AsArray,
    types::{Float32Type, Float64Type, Int32Type, Int64Type},
};
use arrow_schema::DataType;
use pyo3::{
    prelude::*,
    types::{PyBytes, PyList},
};

/// The values of an array as a list; `None` if they have no simple counterpart.
pub(super) fn list<'py>(
    py: Python<'py>,
    array: &dyn Array,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let bytes = |bytes: Option<&[u8]>| bytes.map(|bytes| PyBytes::new(py, bytes));
    let made = match array.data_type() {
        DataType::Utf8 => PyList::new(py, array.as_string::<i32>())?,
        DataType::LargeUtf8 => PyList::new(py, array.as_string::<i64>())?,
        DataType::Binary => PyList::new(
            py,
            array
                .as_binary::<i32>()
                .iter()
                .map(bytes)
                .collect::<Vec<_>>(),
        )?,
        DataType::LargeBinary => PyList::new(
            py,
            array
                .as_binary::<i64>()
                .iter()
                .map(bytes)
                .collect::<Vec<_>>(),
        )?,
        DataType::Boolean => PyList::new(py, array.as_boolean().iter().collect::<Vec<_>>())?,
        DataType::Int32 => PyList::new(
            py,
            array.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(),
        )?,
        DataType::Int64 => PyList::new(
            py,
            array.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(),
        )?,
        DataType::Float32 => PyList::new(
            py,
            array
                .as_primitive::<Float32Type>()
                .iter()
                .collect::<Vec<_>>(),
        )?,
        DataType::Float64 => PyList::new(
            py,
            array
                .as_primitive::<Float64Type>()
                .iter()
                .collect::<Vec<_>>(),
        )?,
        _ => return Ok(None),
    };
    Ok(Some(made))
}

//! Columns as plain memory, for NumPy and torch.

use std::num::NonZeroU32;

use elasticrun_data::{
    ImageSize,
    parts::{Form, Numbers, Pad, Padded, Parts},
};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};

use super::to_py_err;

/// Memory with NumPy's array interface. It lives as long as this object.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Plain {
    numbers: Numbers,
    shape: Vec<usize>,
}

impl Plain {
    /// One number a row.
    fn flat(numbers: Numbers) -> Self {
        let shape = vec![numbers.len()];
        Self { numbers, shape }
    }
}

#[pymethods]
impl Plain {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.numbers.kind)?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (self.numbers.values.as_ptr() as usize, false))?;
        Ok(interface)
    }
}

/// A column, or a part of it, as plain memory.
#[pyclass(frozen, name = "Parts", module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PyParts(Parts);

impl PyParts {
    pub(super) fn of(column: &elasticrun_data::Column) -> Option<Self> {
        Parts::of(&column.array).map(Self)
    }
}

#[pymethods]
impl PyParts {
    fn __len__(&self) -> usize {
        self.0.rows
    }

    /// "numbers", "bytes", "text", "decimals", "fixed", "list", "struct" or "nothing".
    #[getter]
    fn form(&self) -> &'static str {
        match &self.0.form {
            Form::Numbers(_) => "numbers",
            Form::Bytes { is_text: false, .. } => "bytes",
            Form::Bytes { is_text: true, .. } => "text",
            Form::Decimals(_) => "decimals",
            Form::Fixed { .. } => "fixed",
            Form::List { .. } => "list",
            Form::Struct(_) => "struct",
            Form::Nothing => "nothing",
        }
    }

    /// Whether each row has a value; None if all have.
    fn valid(&self) -> Option<Plain> {
        let flags = self.0.valid.clone()?;
        Some(Plain::flat(Numbers::flags(flags)))
    }

    /// The numbers, one a row, or the bytes of all rows.
    fn values(&self) -> Option<Plain> {
        match &self.0.form {
            Form::Numbers(numbers) => Some(Plain::flat(numbers.clone())),
            Form::Bytes { bytes, .. } => Some(Plain::flat(Numbers::bytes(bytes.clone()))),
            _ => None,
        }
    }

    /// Where the values of the rows begin, and the end of the last one.
    fn offsets(&self) -> Option<Plain> {
        match &self.0.form {
            Form::Bytes { offsets, .. } | Form::List { offsets, .. } => {
                Some(Plain::flat(Numbers::integers(offsets.clone())))
            }
            _ => None,
        }
    }

    /// Values of each row of fixed size.
    fn width(&self) -> Option<usize> {
        match &self.0.form {
            Form::Fixed { width, .. } => Some(*width),
            _ => None,
        }
    }

    /// The values of lists, one after the other.
    fn child(&self) -> Option<Self> {
        match &self.0.form {
            Form::Fixed { child, .. } | Form::List { child, .. } => {
                Some(Self(child.as_ref().clone()))
            }
            _ => None,
        }
    }

    /// The fields of a structure, in their order.
    fn fields(&self) -> Vec<(String, Self)> {
        match &self.0.form {
            Form::Struct(fields) => (fields.iter())
                .map(|(name, parts)| (name.clone(), Self(parts.clone())))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Strings, byte strings, and decimals as text; None for null.
    fn objects<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let object = |row: usize| -> PyResult<Bound<'py, PyAny>> {
            Ok(match &self.0.form {
                _ if !self.0.is_valid(row) => py.None().into_bound(py),
                Form::Decimals(texts) => PyString::new(py, &texts[row]).into_any(),
                Form::Bytes {
                    offsets,
                    bytes,
                    is_text,
                } => {
                    let bytes = &bytes[offsets[row] as usize..offsets[row + 1] as usize];
                    match is_text {
                        true => PyString::from_bytes(py, bytes)?.into_any(),
                        false => PyBytes::new(py, bytes).into_any(),
                    }
                }
                _ => return Err(PyTypeError::new_err("no strings or decimals")),
            })
        };
        let objects: Vec<_> = (0..self.0.rows).map(object).collect::<PyResult<_>>()?;
        PyList::new(py, objects)
    }

    /// Encoded images as pixels of shape (rows, height, width, 3) or (rows, height, width), which rows have an image, and how many
    /// could not be decoded.
    #[pyo3(signature = (*, height, width, gray, crop, threads, black))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn images(
        &self,
        py: Python<'_>,
        height: NonZeroU32,
        width: NonZeroU32,
        gray: bool,
        crop: bool,
        threads: usize,
        black: bool,
    ) -> PyResult<(Plain, Plain, usize)> {
        let Form::Bytes { offsets, bytes, .. } = &self.0.form else {
            return Err(PyTypeError::new_err("no byte strings"));
        };
        let row = |row: usize| {
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            self.0.is_valid(row).then(|| &bytes[range])
        };
        let encoded: Vec<_> = (0..self.0.rows).map(row).collect();
        let size = ImageSize {
            height,
            width,
            is_gray: gray,
            crops: crop,
        };
        let images = py.detach(|| size.decode(&encoded, threads, black));
        let images = images.map_err(|error| to_py_err(py, &error.into()))?;
        let channels = (!gray).then_some(3);
        let sides = [self.0.rows, height.get() as usize, width.get() as usize];
        let shape = sides.into_iter().chain(channels).collect();
        let numbers = Numbers::bytes(images.pixels.into());
        let mask = Plain::flat(Numbers::flags(images.mask.into()));
        Ok((Plain { numbers, shape }, mask, images.failed))
    }

    /// Lists as rows of one length: values of shape (rows, length) or (rows, length, width), and which of them are of the rows.
    /// None if they are no lists of numbers.
    #[pyo3(signature = (value, *, length, multiple_of, truncate, left))]
    fn pad(
        &self,
        py: Python<'_>,
        value: &[u8],
        length: Option<usize>,
        multiple_of: usize,
        truncate: bool,
        left: bool,
    ) -> PyResult<(Plain, Plain)> {
        let pad = Pad {
            value,
            length,
            multiple_of,
            truncates: truncate,
            is_left: left,
        };
        let padded = py.detach(|| self.0.padded(&pad));
        let Padded {
            length,
            width,
            numbers,
            mask,
        } = padded.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let rows = self.0.rows;
        let shape = [rows, length].into_iter().chain(width).collect();
        let mask = Plain {
            numbers: Numbers::flags(mask),
            shape: vec![rows, length],
        };
        Ok((Plain { numbers, shape }, mask))
    }
}

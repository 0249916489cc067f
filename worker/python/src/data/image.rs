//! Decodes images without the GIL.

use elasticrun_data::Image as Decoded;
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyTuple},
};

use super::to_py_err;

/// A decoded image with NumPy's array interface.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Image(Decoded);

#[pymethods]
impl Image {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Decoded {
            height,
            width,
            channels,
            depth,
            values,
        } = &self.0;
        let shape = match channels {
            1 => vec![*height, *width],
            _ => vec![*height, *width, *channels],
        };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", if *depth == 2 { "<u2" } else { "|u1" })?;
        interface.set_item("shape", PyTuple::new(py, shape)?)?;
        interface.set_item("data", (values.as_ptr() as usize, false))?;
        Ok(interface)
    }
}

/// Decodes PNG and JPEG images. None stays None.
#[pyfunction]
pub(crate) fn images(
    py: Python<'_>,
    encoded: Vec<Option<Bound<'_, PyBytes>>>,
) -> PyResult<Vec<Option<Image>>> {
    let bytes: Vec<Option<&[u8]>> = encoded
        .iter()
        .map(|one| one.as_ref().map(|one| one.as_bytes()))
        .collect();
    let decoded: Result<Vec<_>, _> = py.detach(|| {
        bytes
            .iter()
            .map(|one| one.map(Decoded::decode).transpose())
            .collect()
    });
    let decoded = decoded.map_err(|error| to_py_err(py, &error.into()))?;
    Ok(decoded.into_iter().map(|one| one.map(Image)).collect())
}

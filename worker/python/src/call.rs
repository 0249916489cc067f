//! The key of the call that `elasticrun.run` makes.

use pyo3::{prelude::*, types::PyBytes};

use crate::error;

/// The key with which this worker fetches the call and returns its result: 32 bytes from the agent of the host. The process
/// joins no round for it.
#[pyfunction]
pub(crate) fn call_key(py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
    match py.detach(elasticrun_worker::call_key) {
        Ok(key) => Ok(PyBytes::new(py, key.expose())),
        Err(error) => Err(error::from_worker(py, &error)),
    }
}

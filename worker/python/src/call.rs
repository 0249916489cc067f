//! The key of the call that `elasticrun.run` makes.

use pyo3::{prelude::*, types::PyBytes};

use crate::error;

/// The key by which this worker fetches the call and brings back its result: 32 bytes, from the agent of its host. The
/// process does not become a member of any round by that.
#[pyfunction]
pub(crate) fn call_key(py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
    match py.detach(elasticrun_worker::call_key) {
        Ok(key) => Ok(PyBytes::new(py, key.expose())),
        Err(error) => Err(error::of(py, &error)),
    }
}

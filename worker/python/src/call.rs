//! The identity of this worker in the call that `elasticrun.run` makes.

use pyo3::prelude::*;

use crate::error;

/// The identity by which this worker fetches the call and returns its result: JSON text from the agent of the host, with a
/// private key. The process joins no round for it.
#[pyfunction]
pub(crate) fn call_identity(py: Python<'_>) -> PyResult<String> {
    match py.detach(elasticrun_worker::call_identity) {
        Ok(identity) => Ok(identity.0),
        Err(error) => Err(error::from_worker(py, &error)),
    }
}

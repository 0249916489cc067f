//! The identity of this worker in the call that `elasticrun.run` makes.

use std::os::fd::{IntoRawFd, RawFd};

use pyo3::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};

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

/// A file in memory, without a name in the file system: its descriptor, which the caller closes. Programs that this process
/// executes do not inherit it.
#[pyfunction]
pub(crate) fn memory_file(name: &str) -> PyResult<RawFd> {
    match memfd_create(name, MemfdFlags::CLOEXEC) {
        Ok(file) => Ok(file.into_raw_fd()),
        Err(error) => Err(std::io::Error::from(error).into()),
    }
}

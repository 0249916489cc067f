//! Pages that tensors of one round leave to those of the next one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use elasticrun_worker::PagePool;
use pyo3::prelude::*;

/// Pages between two uses. Those that are left are freed with it.
#[pyclass(frozen, name = "PagePool", module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PyPagePool(Mutex<PagePool>);

impl PyPagePool {
    fn pool(&self) -> MutexGuard<'_, PagePool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyPagePool {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(PagePool::new()))
    }

    /// Takes the pages of a buffer (address, bytes), whose values nobody needs any more. It stays valid. Returns the bytes.
    fn take(&self, py: Python<'_>, buffer: (usize, usize)) -> usize {
        py.detach(|| {
            let start = std::ptr::with_exposed_provenance_mut(buffer.0);
            // SAFETY: Python keeps the memory alive, and does not use it meanwhile.
            unsafe { self.pool().take(start, buffer.1) }
        })
    }

    /// Provides pages for so many bytes ahead of their use, in a thread of its own.
    fn provide(&self, py: Python<'_>, nbytes: usize) {
        py.detach(|| self.pool().provide(nbytes));
    }

    /// Frees pages beyond `most` bytes, and provides what is missing to `least`. Frees all if memory is scarce.
    fn keep(&self, py: Python<'_>, least: usize, most: usize) {
        py.detach(|| self.pool().keep(least, most));
    }

    /// Gives pages to buffers (address, bytes) that may have any values. Returns the bytes.
    fn give(&self, py: Python<'_>, buffers: Vec<(usize, usize)>) -> PyResult<usize> {
        let given = py.detach(|| {
            let mut pool = self.pool();
            buffers.into_iter().try_fold(0, |sum, (address, nbytes)| {
                let start = std::ptr::with_exposed_provenance_mut(address);
                // SAFETY: Python keeps the memory alive, and does not use it meanwhile.
                let given = unsafe { pool.give(start, nbytes) }?;
                Ok::<_, std::io::Error>(sum + given)
            })
        })?;
        Ok(given)
    }
}

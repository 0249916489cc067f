//! The order of the samples of an epoch, for Python's sampler.

use elasticrun_worker::sampler::Permutation;
use pyo3::{exceptions::PyIndexError, prelude::*, types::PyBytes};

/// A random order of `0..len` in constant memory; the same for the same seed and epoch everywhere.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Order {
    len: u64,
    order: Permutation,
}

#[pymethods]
impl Order {
    #[new]
    fn new(len: u64, seed: u64, epoch: u64) -> Self {
        Self {
            len,
            order: Permutation::new(len, seed, epoch),
        }
    }

    /// The index at a place of the order.
    fn at(&self, place: u64) -> PyResult<u64> {
        self.check(place, place.saturating_add(1))?;
        Ok(self.order.at(place))
    }

    /// The indices at the places `start`, `start + step`, ... below `stop`, as native 64-bit integers.
    #[pyo3(signature = (start, stop, step = 1))]
    fn slice<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        stop: u64,
        step: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.check(start, stop)?;
        let step = usize::try_from(step.max(1)).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = py.detach(|| {
            (start..stop)
                .step_by(step)
                .flat_map(|place| (self.order.at(place) as i64).to_ne_bytes())
                .collect()
        });
        Ok(PyBytes::new(py, &bytes))
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }
}

impl Order {
    fn check(&self, start: u64, stop: u64) -> PyResult<()> {
        if start <= stop && stop <= self.len {
            return Ok(());
        }
        Err(PyIndexError::new_err(format!(
            "places {start}..{stop} of an order of {}",
            self.len
        )))
    }
}

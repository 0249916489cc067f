//! The sampler of the SDK, for Python's.

use elasticrun_worker::ElasticSampler;
use pyo3::{
    exceptions::{PyIndexError, PyValueError},
    prelude::*,
    types::PyBytes,
};

/// The position of all workers in the samples of an epoch. Indices are given as native 64-bit integers.
#[pyclass(module = "elasticrun._native")]
#[derive(Clone, Debug)]
pub(crate) struct Sampler(ElasticSampler);

#[pymethods]
impl Sampler {
    #[new]
    fn new(len: u64, seed: u64, shuffle: bool) -> Self {
        Self(match shuffle {
            true => ElasticSampler::new(len, seed),
            false => ElasticSampler::unshuffled(len),
        })
    }

    /// Samples of the epoch that all workers together have processed.
    #[getter]
    fn position(&self) -> u64 {
        self.0.position()
    }

    /// Goes to a position of an epoch, and divides the remaining samples among the workers.
    fn go_to(&mut self, epoch: u64, position: u64) -> PyResult<()> {
        if position > self.0.len() {
            return Err(PyValueError::new_err(format!(
                "position {position} is beyond {} samples",
                self.0.len()
            )));
        }
        self.0.go_to(epoch, position);
        Ok(())
    }

    /// Divides the remaining samples among the members of a new round.
    fn share_out(&mut self) {
        self.0.share_out();
    }

    /// Number of samples that iteration yields on a rank.
    fn turns(&self, rank: u32, size: u32, padding: bool) -> u64 {
        self.0.turns(rank, size, padding).len()
    }

    /// Number of samples that iteration yields on all workers.
    fn turns_of_all(&self, size: u32, padding: bool) -> u64 {
        self.0.turns(0, size, padding).len_of_all()
    }

    /// Samples that iteration yields on a rank in its turns from `first` to `stop`, or to the end.
    fn indices<'py>(
        &self,
        py: Python<'py>,
        worker: (u32, u32, bool),
        first: u64,
        stop: u64,
    ) -> Bound<'py, PyBytes> {
        let (rank, size, padding) = worker;
        let turns = self.0.turns(rank, size, padding);
        let stop = stop.min(turns.len());
        to_bytes(py, || (first..stop).map(|turn| turns.at(turn)))
    }

    /// Number of turns of the iteration that all workers have done.
    fn turns_done(&self, size: u32) -> u64 {
        self.0.turns_done(size)
    }

    /// Records that all workers have done `turns` turns of the iteration.
    fn record_turns(&mut self, turns: u64, size: u32) {
        self.0.record_turns(turns, size);
    }

    /// The share of a rank in the next step, at most `max` samples, and the number of samples of all workers in that step.
    /// None at the end of the epoch.
    fn next_batch<'py>(
        &self,
        py: Python<'py>,
        rank: u32,
        size: u32,
        max: u32,
    ) -> Option<(Bound<'py, PyBytes>, u64)> {
        let batch = self.0.batch_of(rank, size, max)?;
        let indices = to_bytes(py, || batch.indices());
        Some((indices, batch.global_len()))
    }

    /// Records that all workers together have processed the next `samples` samples of the epoch.
    fn record_next(&mut self, samples: u64) {
        self.0.record_next(samples);
    }

    /// A copy that later records do not change.
    fn copy(&self) -> Self {
        self.clone()
    }

    /// The sample at an index of the epoch order.
    fn sample_at(&self, index: u64) -> PyResult<u64> {
        if index >= self.0.len() {
            let what = format!("index {index} of an order of {}", self.0.len());
            return Err(PyIndexError::new_err(what));
        }
        Ok(self.0.at(index))
    }
}

/// Indices as native 64-bit integers.
fn to_bytes<'py, I>(py: Python<'py>, indices: impl FnOnce() -> I + Send) -> Bound<'py, PyBytes>
where
    I: Iterator<Item = u64>,
{
    let native = |index: u64| (index as i64).to_ne_bytes();
    let bytes: Vec<u8> = py.detach(|| indices().flat_map(native).collect());
    PyBytes::new(py, &bytes)
}

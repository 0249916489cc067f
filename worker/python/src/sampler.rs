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

    /// Goes to a position of an epoch; what is left from there is shared out.
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

    /// Shares out what is left among the members of a new round.
    fn share_out(&mut self) {
        self.0.share_out();
    }

    /// Samples that iteration gives the worker of a rank.
    fn turns(&self, rank: u32, size: u32, padding: bool) -> u64 {
        self.0.turns(rank, size, padding).len()
    }

    /// Samples that iteration gives all workers.
    fn turns_of_all(&self, size: u32, padding: bool) -> u64 {
        self.0.turns(0, size, padding).len_of_all()
    }

    /// What iteration gives the worker of a rank in its turns from `first` to `stop`, or to the end.
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
        bytes_of(py, || (first..stop).map(|turn| turns.at(turn)))
    }

    /// Turns of the iteration that all workers have done.
    fn turns_done(&self, size: u32) -> u64 {
        self.0.turns_done(size)
    }

    /// All workers have done so many turns of the iteration.
    fn record_turns(&mut self, turns: u64, size: u32) {
        self.0.record_turns(turns, size);
    }

    /// The share of the worker of a rank in the next step, at most `most` samples, and the samples of all workers in it;
    /// none at the end of the epoch.
    fn next_batch<'py>(
        &self,
        py: Python<'py>,
        rank: u32,
        size: u32,
        most: u32,
    ) -> Option<(Bound<'py, PyBytes>, u64)> {
        let batch = self.0.batch_of(rank, size, most)?;
        let indices = bytes_of(py, || batch.indices());
        Some((indices, batch.global_len()))
    }

    /// The next samples of the epoch are processed, by all workers together.
    fn record_next(&mut self, samples: u64) {
        self.0.record_next(samples);
    }

    /// As it is now, whatever is recorded later.
    fn copy(&self) -> Self {
        self.clone()
    }

    /// The sample at a place of the order of this epoch.
    fn at(&self, place: u64) -> PyResult<u64> {
        if place >= self.0.len() {
            let what = format!("place {place} of an order of {}", self.0.len());
            return Err(PyIndexError::new_err(what));
        }
        Ok(self.0.at(place))
    }
}

fn bytes_of<'py, I>(py: Python<'py>, indices: impl FnOnce() -> I + Send) -> Bound<'py, PyBytes>
where
    I: Iterator<Item = u64>,
{
    let native = |index: u64| (index as i64).to_ne_bytes();
    let bytes: Vec<u8> = py.detach(|| indices().flat_map(native).collect());
    PyBytes::new(py, &bytes)
}

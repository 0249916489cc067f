//! The job's key-value store.

use std::time::Duration;

use elasticrun_worker::{
    Error, Store,
    store::{Op, Value},
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

use crate::error;

/// Interval at which a wait checks for signals.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

/// Keys and values that all workers share: those of a round, which are deleted with it, or those of the job.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Keys(pub(crate) Store);

#[pymethods]
impl Keys {
    /// Writes a value.
    fn set(&self, py: Python<'_>, key: String, value: &[u8]) -> PyResult<()> {
        let value = value.into();
        self.request(py, Op::Set { key, value }, None).map(drop)
    }

    /// Reads a value as soon as it is set. Raises StoreTimeout after `timeout` seconds.
    fn get<'py>(&self, py: Python<'py>, key: String, timeout: f64) -> PyResult<Bound<'py, PyAny>> {
        self.request(py, Op::Get { key }, Some(timeout))
    }

    /// Adds to a number, initially 0, and returns the sum.
    fn add<'py>(&self, py: Python<'py>, key: String, amount: i64) -> PyResult<Bound<'py, PyAny>> {
        self.request(py, Op::Add { key, amount }, None)
    }

    /// Writes `desired` if the value is `expected`, or if there is none and `expected` is empty. Returns the value afterwards,
    /// None if there is none.
    fn compare_set<'py>(
        &self,
        py: Python<'py>,
        key: String,
        expected: &[u8],
        desired: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        let (expected, desired) = (expected.into(), desired.into());
        let op = Op::CompareSet {
            key,
            expected,
            desired,
        };
        self.request(py, op, None)
    }

    /// Waits until all keys are set. Raises StoreTimeout, which names the missing keys, after `timeout` seconds.
    fn wait(&self, py: Python<'_>, keys: Vec<String>, timeout: f64) -> PyResult<()> {
        self.request(py, Op::Wait { keys }, Some(timeout)).map(drop)
    }

    /// Whether all keys are set.
    fn check<'py>(&self, py: Python<'py>, keys: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        self.request(py, Op::Check { keys }, None)
    }

    /// Deletes a key. Returns whether it was set.
    fn delete<'py>(&self, py: Python<'py>, key: String) -> PyResult<Bound<'py, PyAny>> {
        self.request(py, Op::Delete { key }, None)
    }

    /// Number of keys that begin with `prefix`.
    fn num_keys<'py>(&self, py: Python<'py>, prefix: String) -> PyResult<Bound<'py, PyAny>> {
        self.request(py, Op::NumKeys { prefix }, None)
    }

    /// Appends to a value.
    fn append(&self, py: Python<'_>, key: String, value: &[u8]) -> PyResult<()> {
        let value = value.into();
        self.request(py, Op::Append { key, value }, None).map(drop)
    }

    /// Reads values as soon as all are set. Raises StoreTimeout after `timeout` seconds.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<String>,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.request(py, Op::MultiGet { keys }, Some(timeout))
    }

    /// Appends an element to a queue.
    fn queue_push(&self, py: Python<'_>, key: String, value: &[u8]) -> PyResult<()> {
        let value = value.into();
        self.request(py, Op::QueuePush { key, value }, None)
            .map(drop)
    }

    /// Takes the first element of a queue as soon as there is one. Raises StoreTimeout after `timeout` seconds.
    fn queue_pop<'py>(
        &self,
        py: Python<'py>,
        key: String,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let block = true;
        self.request(py, Op::QueuePop { key, block }, Some(timeout))
    }

    /// Takes the first element of a queue. None if the queue is empty.
    fn queue_try_pop<'py>(&self, py: Python<'py>, key: String) -> PyResult<Bound<'py, PyAny>> {
        let block = false;
        self.request(py, Op::QueuePop { key, block }, None)
    }

    /// The number of elements of a queue.
    fn queue_len<'py>(&self, py: Python<'py>, key: String) -> PyResult<Bound<'py, PyAny>> {
        self.request(py, Op::QueueLen { key }, None)
    }

    /// The keys that have a value and begin with `prefix`, in order and without the prefix.
    fn list_keys(&self, py: Python<'_>, prefix: String) -> PyResult<Vec<String>> {
        let mut listed: Vec<String> = Vec::new();
        loop {
            let (prefix, after) = (prefix.clone(), listed.last().cloned());
            let answer = self.answer(py, Op::ListKeys { prefix, after }, None)?;
            let Value::Keys { keys, more } = answer else {
                let why = "the store answered a list of keys with something else";
                return Err(error::exception(py, "StoreError", why));
            };
            let is_last = !more || keys.is_empty();
            listed.extend(keys);
            if is_last {
                return Ok(listed);
            }
        }
    }

    /// Writes all values or, if the store has no space for them, none.
    fn multi_set(&self, py: Python<'_>, entries: Vec<(String, Vec<u8>)>) -> PyResult<()> {
        let entries = entries
            .into_iter()
            .map(|(key, value)| (key, value.as_slice().into()))
            .collect();
        self.request(py, Op::MultiSet { entries }, None).map(drop)
    }
}

impl Keys {
    /// Sends a request and waits for the answer without the GIL. Ctrl-C ends the wait.
    fn answer(&self, py: Python<'_>, op: Op, seconds: Option<f64>) -> PyResult<Value> {
        let timeout = match seconds {
            None => REQUEST_TIMEOUT,
            Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| {
                PyValueError::new_err(format!("timeout of {seconds} s: {error}"))
            })?,
        };
        let raised = |error: Error| error::from_worker(py, &error);
        let mut call = py.detach(|| self.0.start(op, timeout)).map_err(raised)?;
        loop {
            if let Some(answer) = py.detach(|| call.poll(SIGNAL_POLL)) {
                return answer.map_err(raised);
            }
            py.check_signals()?;
        }
    }

    /// The same. The answer is an object of Python.
    fn request<'py>(
        &self,
        py: Python<'py>,
        op: Op,
        seconds: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let answer = self.answer(py, op, seconds)?;
        Ok(match answer {
            Value::Done => py.None().into_bound(py),
            Value::Bytes(value) => PyBytes::new(py, &value.0).into_any(),
            Value::Current(None) => py.None().into_bound(py),
            Value::Current(Some(value)) => PyBytes::new(py, &value.0).into_any(),
            Value::Number(number) => number.into_pyobject(py)?.into_any(),
            Value::Truth(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
            Value::Many(values) => {
                let values = values.iter().map(|value| PyBytes::new(py, &value.0));
                pyo3::types::PyList::new(py, values)?.into_any()
            }
            Value::Keys { keys, .. } => keys.into_pyobject(py)?.into_any(),
            Value::Large { .. } => {
                let why = "the store gave a reference in place of a value";
                return Err(error::exception(py, "StoreError", why));
            }
        })
    }
}

/// Timeout of requests that wait for no key.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

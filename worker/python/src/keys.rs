//! The job's key-value store.

use std::time::Duration;

use elasticrun_worker::{
    Error, Store,
    store::{Op, Value},
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

use crate::error;

/// How long a wait lasts before it looks for signals.
const LOOK: Duration = Duration::from_millis(100);

/// Keys and values that all workers share: those of a round, which are gone with it, or those of the job.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Keys(pub(crate) Store);

#[pymethods]
impl Keys {
    /// Writes a value.
    fn set(&self, py: Python<'_>, key: String, value: &[u8]) -> PyResult<()> {
        let value = value.into();
        self.ask(py, Op::Set { key, value }, None).map(drop)
    }

    /// Reads a value as soon as it is there. StoreTimeout if nobody has set it after `timeout` seconds.
    fn get<'py>(&self, py: Python<'py>, key: String, timeout: f64) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, Op::Get { key }, Some(timeout))
    }

    /// Adds to a number, which is 0 before, and gives the sum.
    fn add<'py>(&self, py: Python<'py>, key: String, amount: i64) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, Op::Add { key, amount }, None)
    }

    /// Writes `desired` if the value is `expected`, or if there is none and `expected` is empty. Gives what is there
    /// after it, None if nothing is.
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
        self.ask(py, op, None)
    }

    /// Waits until all keys are there. StoreTimeout names what is missing after `timeout` seconds.
    fn wait(&self, py: Python<'_>, keys: Vec<String>, timeout: f64) -> PyResult<()> {
        self.ask(py, Op::Wait { keys }, Some(timeout)).map(drop)
    }

    /// Whether all keys are there.
    fn check<'py>(&self, py: Python<'py>, keys: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, Op::Check { keys }, None)
    }

    /// Removes a key; whether it was there.
    fn delete<'py>(&self, py: Python<'py>, key: String) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, Op::Delete { key }, None)
    }

    /// How many keys begin with `prefix`.
    fn num_keys<'py>(&self, py: Python<'py>, prefix: String) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, Op::NumKeys { prefix }, None)
    }

    /// Writes behind what is there.
    fn append(&self, py: Python<'_>, key: String, value: &[u8]) -> PyResult<()> {
        let value = value.into();
        self.ask(py, Op::Append { key, value }, None).map(drop)
    }

    /// Reads values as soon as all are there.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<String>,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, Op::MultiGet { keys }, Some(timeout))
    }

    /// Writes all values or, if there is no room for them, none.
    fn multi_set(&self, py: Python<'_>, entries: Vec<(String, Vec<u8>)>) -> PyResult<()> {
        let entries = entries
            .into_iter()
            .map(|(key, value)| (key, value.as_slice().into()))
            .collect();
        self.ask(py, Op::MultiSet { entries }, None).map(drop)
    }
}

impl Keys {
    /// Asks and waits without the GIL; Ctrl-C ends the wait.
    fn ask<'py>(
        &self,
        py: Python<'py>,
        op: Op,
        seconds: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let timeout = match seconds {
            None => ANSWER,
            Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| {
                PyValueError::new_err(format!("timeout of {seconds} s: {error}"))
            })?,
        };
        let raised = |error: Error| error::of(py, &error);
        let mut call = py.detach(|| self.0.start(op, timeout)).map_err(raised)?;
        let answer = loop {
            if let Some(answer) = py.detach(|| call.poll(LOOK)) {
                break answer.map_err(raised)?;
            }
            py.check_signals()?;
        };
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
        })
    }
}

/// How long the driver may take for what needs no waiting.
const ANSWER: Duration = Duration::from_secs(60);

//! A request in flight.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use elasticrun_ps::{
    Callback, Customer, SimpleApp, Timestamp,
    dynamic::{AnyPull, AnyPulled, AnyWorker},
};
use pyo3::{prelude::*, types::PyByteArray};

use super::{PsNode, SIGNAL_POLL, raised, seconds};

/// Who has made it.
#[derive(Debug)]
pub(super) enum Sender {
    Worker(Arc<dyn AnyWorker>),
    Simple(SimpleApp),
}

/// A request of a worker or of a simple app.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PsRequest {
    node: Py<PsNode>,
    sender: Sender,
    timestamp: Timestamp,
    result: Mutex<Slot>,
}

/// What a pull got, once it is done.
#[derive(Debug, Default)]
struct Slot {
    pull: Option<Box<dyn AnyPull>>,
    pulled: Option<AnyPulled>,
}

impl PsRequest {
    pub(super) fn new(
        node: Py<PsNode>,
        sender: Sender,
        timestamp: Timestamp,
        pull: Option<Box<dyn AnyPull>>,
    ) -> Self {
        Self {
            node,
            sender,
            timestamp,
            result: Mutex::new(Slot { pull, pulled: None }),
        }
    }

    fn customer(&self) -> &Customer {
        match &self.sender {
            Sender::Worker(worker) => worker.customer(),
            Sender::Simple(app) => app.customer(),
        }
    }

    fn result(&self) -> MutexGuard<'_, Slot> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Values<'py> = (Bound<'py, PyByteArray>, Option<Bound<'py, PyByteArray>>);

#[pymethods]
impl PsRequest {
    /// Its number at its customer.
    #[getter]
    fn timestamp(&self) -> u64 {
        self.timestamp.0
    }

    /// Whether it is completed, with an error or not.
    fn poll(&self) -> bool {
        self.customer().is_done(self.timestamp)
    }

    /// Waits until it is completed, for `timeout` seconds or the request timeout, and raises its error. Raises PsTimeout, and ends
    /// the request then.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let postoffice = self.node.get().get(py)?;
        let limit = match timeout {
            Some(timeout) => seconds(timeout)?,
            None => postoffice.options().request_timeout,
        };
        let waited = wait(py, self.customer(), self.timestamp, limit);
        let pull = self.result().pull.take();
        // A failed pull is forgotten.
        waited?;
        if let Some(pull) = pull {
            let pulled = pull.wait_for(Duration::ZERO);
            self.result().pulled = Some(pulled.map_err(|error| raised(py, &error))?);
        }
        Ok(())
    }

    /// The values of a pull that was given no memory, and the lens if they differ. None if they were taken before.
    fn take<'py>(&self, py: Python<'py>) -> Option<Values<'py>> {
        let pulled = self.result().pulled.take()?;
        let lens = pulled.lens.map(|lens| {
            let bytes: Vec<u8> = lens.iter().flat_map(|len| len.to_ne_bytes()).collect();
            PyByteArray::new(py, &bytes)
        });
        Some((PyByteArray::new(py, &pulled.values), lens))
    }
}

/// Waits without the GIL.
fn wait(
    py: Python<'_>,
    customer: &Customer,
    timestamp: Timestamp,
    limit: Duration,
) -> PyResult<()> {
    let began = Instant::now();
    loop {
        let left = limit.saturating_sub(began.elapsed());
        let slice = left.min(SIGNAL_POLL);
        let waited = py.detach(|| match customer.wait_for(timestamp, slice) {
            None if slice == left => Some(customer.give_up(timestamp, limit)),
            waited => waited,
        });
        match waited {
            Some(result) => return result.map_err(|error| raised(py, &error)),
            None => py.check_signals()?,
        }
    }
}

/// Calls `callback(error or None)`, on the thread that completes the request.
pub(super) fn callback(callback: Py<PyAny>) -> Callback {
    Box::new(move |result| {
        // None while the interpreter ends.
        Python::try_attach(|py| {
            let error = result.err().map(|error| raised(py, &error).into_value(py));
            if let Err(error) = callback.call1(py, (error,)) {
                error.write_unraisable(py, Some(callback.bind(py)));
            }
        });
    })
}

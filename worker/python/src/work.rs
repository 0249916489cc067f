//! The handle of a collective, and its outcome.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use elasticrun_worker::{GroupError, Observer, worker::ErrorClassifier};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyList},
};

use crate::{callbacks, error};

/// The result of a collective, apart from the memory that it wrote.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The memory only.
    Written,
    /// The bytes of one rank.
    Bytes(Vec<u8>),
    /// The bytes of each rank.
    Each(Vec<Vec<u8>>),
}

/// Interval at which a wait of the main thread checks for signals.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

/// Interval of warnings that name the late ranks of a collective, as Horovod's stall check does.
const STALL: Duration = Duration::from_secs(60);

/// A submitted collective, shared by its Python handle and the queue.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    done: Condvar,
    name: Option<String>,
    judge: ErrorClassifier,
    observer: Observer,
    /// Callback level of the thread that started it: see [`callbacks`].
    level: usize,
}

/// Callbacks, and the object that must live until they have run.
#[derive(Debug)]
struct Callbacks {
    then: Vec<Py<PyAny>>,
    keep: Option<Py<PyAny>>,
}

#[derive(Debug)]
struct State {
    outcome: Option<Result<Outcome, GroupError>>,
    then: Vec<Py<PyAny>>,
    keep: Option<Py<PyAny>>,
}

impl Shared {
    pub(crate) fn new(
        name: Option<String>,
        judge: ErrorClassifier,
        observer: Observer,
        keep: Option<Py<PyAny>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                outcome: None,
                then: Vec::new(),
                keep,
            }),
            done: Condvar::new(),
            name,
            judge,
            observer,
            level: callbacks::level(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the outcome and dispatches the callbacks. Called on the thread of the queue, without the GIL.
    pub(crate) fn complete(self: &Arc<Self>, outcome: Result<Outcome, GroupError>) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        let then = std::mem::take(&mut state.then);
        let keep = if then.is_empty() {
            None
        } else {
            state.keep.take()
        };
        drop(state);
        self.done.notify_all();
        if !then.is_empty() {
            let work = Arc::clone(self);
            let run = move || work.run_callbacks(Callbacks { then, keep });
            callbacks::dispatch(self.level, Box::new(run));
        }
    }

    /// Calls callbacks.
    fn run_callbacks(&self, callbacks: Callbacks) {
        // None while the interpreter ends; then no code waits for these callbacks.
        Python::try_attach(|py| {
            for callback in callbacks.then {
                self.call(py, &callback);
            }
            drop(callbacks.keep);
        });
    }

    fn call(&self, py: Python<'_>, callback: &Py<PyAny>) {
        let error = self.error(py).map(|error| error.into_value(py));
        if let Err(error) = callback.call1(py, (error,)) {
            error.write_unraisable(py, Some(callback.bind(py)));
        }
    }

    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        let state = self.lock();
        let cause = state.outcome.as_ref()?.as_ref().err()?.clone();
        drop(state);
        let judged = self.judge.error(cause.clone());
        Some(error::from_collective(
            py,
            &cause,
            &judged,
            self.name.as_deref(),
        ))
    }

    /// Logs the wait and, as far as known, the ranks that are late.
    fn report_stall(&self, py: Python<'_>, waited: Duration) -> PyResult<()> {
        let text = format!(
            "{} has waited for {} s; {}",
            self.name.as_deref().unwrap_or("a collective"),
            waited.as_secs(),
            self.observer.explain()
        );
        let logger = py
            .import("logging")?
            .call_method1("getLogger", ("elasticrun",))?;
        logger.call_method1("warning", ("%s", text)).map(drop)
    }

    fn is_done(&self) -> bool {
        self.lock().outcome.is_some()
    }

    /// Waits until it is done; the caller has released the GIL. Returns `false` at the deadline.
    fn wait(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        while state.outcome.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.done.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// A collective that was submitted to a [`CollectiveQueue`](crate::collective_queue::CollectiveQueue).
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Work(pub(crate) Arc<Shared>);

#[pymethods]
impl Work {
    /// Waits until it is done on this rank, and raises its error. Raises TimeoutError after `timeout` seconds; the operation
    /// continues.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = timeout
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map(|timeout| Instant::now() + timeout);
        let began = Instant::now();
        let mut stall = STALL;
        loop {
            let next_check = Instant::now() + SIGNAL_POLL;
            let until = deadline.map_or(next_check, |deadline| deadline.min(next_check));
            if self.0.is_done() || py.detach(|| self.0.wait(until)) {
                break;
            }
            py.check_signals()?;
            if began.elapsed() >= stall {
                self.0.report_stall(py, stall)?;
                stall += STALL;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(pyo3::exceptions::PyTimeoutError::new_err(format!(
                    "{} is not done after {} s",
                    self.0.name.as_deref().unwrap_or("the collective"),
                    timeout.unwrap_or_default()
                )));
            }
        }
        let keep = self.0.lock().keep.take();
        drop(keep);
        match self.0.error(py) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Whether it is done, successfully or not.
    fn poll(&self) -> bool {
        self.0.is_done()
    }

    /// Waits, and returns the bytes (broadcast_bytes), the list of bytes (allgather_bytes), or None.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.wait(py, None)?;
        let state = self.0.lock();
        Ok(match &state.outcome {
            Some(Ok(Outcome::Bytes(bytes))) => PyBytes::new(py, bytes).into_any(),
            Some(Ok(Outcome::Each(each))) => {
                PyList::new(py, each.iter().map(|bytes| PyBytes::new(py, bytes)))?.into_any()
            }
            _ => py.None().into_bound(py),
        })
    }

    /// Calls `callback(error or None)` once it is done: on a callback thread, or in this thread if it is done already.
    fn then(&self, py: Python<'_>, callback: Py<PyAny>) {
        let mut state = self.0.lock();
        if state.outcome.is_none() {
            state.then.push(callback);
            return;
        }
        drop(state);
        self.0.call(py, &callback);
    }

    /// The name that the caller gave.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }
}

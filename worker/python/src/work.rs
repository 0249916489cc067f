//! A collective that runs, and what came of it.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use elasticrun_worker::{GroupError, Observer, worker::Judge};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyList},
};

use crate::{callbacks, error};

/// What a collective gives beside what it wrote.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing.
    Written,
    /// The bytes of one rank.
    Bytes(Vec<u8>),
    /// The bytes of each rank.
    Each(Vec<Vec<u8>>),
}

/// How long a wait of the main thread lasts before it looks for signals.
const LOOK: Duration = Duration::from_millis(100);

/// How long a collective may take before a person is told who is late, as Horovod's stall check does; and again
/// after each such time.
const STALL: Duration = Duration::from_secs(60);

/// A collective that was submitted: shared by Python and the lane.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    done: Condvar,
    name: Option<String>,
    judge: Judge,
    observer: Observer,
    /// That of the thread that started it: see [`callbacks`].
    level: usize,
}

/// Callbacks, and what must live until they were called.
#[derive(Debug)]
pub(crate) struct Told {
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
        judge: Judge,
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

    /// It is done. Called on the lane, without the GIL.
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
            callbacks::tell(self.level, Arc::clone(self), Told { then, keep });
        }
    }

    /// Calls callbacks.
    pub(crate) fn tell(&self, told: Told) {
        // None while the interpreter ends: then nobody waits for these calls.
        Python::try_attach(|py| {
            for callback in told.then {
                self.call(py, &callback);
            }
            drop(told.keep);
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
        Some(error::of_collective(
            py,
            &cause,
            &judged,
            self.name.as_deref(),
        ))
    }

    /// Logs that this waits, and for whom as far as it is known.
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

    /// Waits without the GIL until it is done. `false` at the deadline.
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

/// A collective that was submitted to a lane.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Work(pub(crate) Arc<Shared>);

#[pymethods]
impl Work {
    /// Waits until it is done here, and raises what went wrong. TimeoutError after `timeout` seconds: it goes on.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = timeout
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map(|timeout| Instant::now() + timeout);
        let began = Instant::now();
        let mut stall = STALL;
        loop {
            let look = Instant::now() + LOOK;
            let until = deadline.map_or(look, |deadline| deadline.min(look));
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

    /// Whether it is done, well or not.
    fn poll(&self) -> bool {
        self.0.is_done()
    }

    /// Waits, and gives the bytes (broadcast_bytes), the list of bytes (allgather_bytes), or None.
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

    /// Calls `callback(error or None)` once it is done: on a thread for callbacks, or at once if it is done already.
    fn then(&self, py: Python<'_>, callback: Py<PyAny>) {
        let mut state = self.0.lock();
        if state.outcome.is_none() {
            state.then.push(callback);
            return;
        }
        drop(state);
        self.0.call(py, &callback);
    }

    /// What was given as the name.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }
}

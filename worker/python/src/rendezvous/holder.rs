//! The state of a run as bytes.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use elasticrun_protocol::rendezvous::Snapshot;
use elasticrun_rendezvous::{Error, Holder, Place, Replaced};
use pyo3::{prelude::*, types::PyBytes};

use super::{SIGNAL_POLL, Tls, duration, place, raised};

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The state of a run, with a fencing token. Calls take at most 30 s.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct RendezvousHolder(Mutex<Holder>);

type State<'py> = (Option<Bound<'py, PyBytes>>, u64);

#[pymethods]
impl RendezvousHolder {
    /// Connects to a server, or to `etcd://...` with the files `tls`. Raises RendezvousUnreachable if nothing answers within
    /// `timeout` seconds.
    #[new]
    #[pyo3(signature = (text, run, timeout, tls=None))]
    fn new(
        py: Python<'_>,
        text: &str,
        run: &str,
        timeout: f64,
        tls: Option<Tls>,
    ) -> PyResult<Self> {
        let place = place(text, tls.as_ref())?;
        let until = Instant::now() + duration(timeout)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let slice = left.min(match &place {
                Place::Server(_) => SIGNAL_POLL * 5,
                Place::Etcd(cluster) => cluster.patience(),
            });
            let attempt = place.clone();
            match py.detach(|| Holder::connect(attempt, run, CALL_TIMEOUT, slice)) {
                Ok(holder) => return Ok(Self(Mutex::new(holder))),
                Err(error) if error.is_temporary() && !left.is_zero() => py.check_signals()?,
                Err(error) => return Err(raised(py, &error)),
            }
        }
    }

    /// The state of now, None before the first write, and its token. Raises RendezvousUnreachable.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<State<'py>> {
        let read = py.detach(|| self.call(Holder::read));
        let snapshot = read.map_err(|error| raised(py, &error))?;
        Ok(of_python(py, snapshot))
    }

    /// Replaces the state if its token is the expected one; without one, if there is no state. Returns None if that is done,
    /// else the state of now. Raises RendezvousUnreachable.
    #[pyo3(signature = (state, expected))]
    fn compare_and_set<'py>(
        &self,
        py: Python<'py>,
        state: &[u8],
        expected: Option<u64>,
    ) -> PyResult<(bool, State<'py>)> {
        let written = py.detach(|| self.call(|holder| holder.compare_and_set(expected, state)));
        Ok(match written.map_err(|error| raised(py, &error))? {
            Replaced::Written(token) => (true, (Some(PyBytes::new(py, state)), token)),
            Replaced::Conflict(snapshot) => (false, of_python(py, snapshot)),
        })
    }
}

impl RendezvousHolder {
    fn call<T>(&self, call: impl FnOnce(&mut Holder) -> Result<T, Error>) -> Result<T, Error> {
        call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn of_python(py: Python<'_>, snapshot: Snapshot) -> State<'_> {
    let state = snapshot.state.map(|state| PyBytes::new(py, &state.0));
    (state, snapshot.token)
}

//! The server of an endpoint, in this process.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use elasticrun_rendezvous::Server;
use pyo3::prelude::*;

use super::{SIGNAL_POLL, duration, endpoint, raised};

/// Serves the rendezvous of all runs of an endpoint until it is stopped.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct RendezvousServer {
    server: Mutex<Option<Server>>,
    port: u16,
}

#[pymethods]
impl RendezvousServer {
    /// Listens. Raises RendezvousUnreachable if the port is in use or the host is another machine.
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        let endpoint = endpoint(text)?;
        let server = py.detach(|| Server::start(&endpoint));
        let server = server.map_err(|error| raised(py, &error))?;
        Ok(Self {
            port: server.address().port(),
            server: Mutex::new(Some(server)),
        })
    }

    /// The port at which it listens.
    #[getter]
    fn port(&self) -> u16 {
        self.port
    }

    /// The number of connected nodes of a run; of all runs without one.
    #[pyo3(signature = (run=None))]
    fn nodes(&self, run: Option<&str>) -> usize {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map_or(0, |server| server.nodes(run))
    }

    /// Waits until no node of a run, or of any run, is connected. Whether that is so within `timeout` seconds.
    #[pyo3(signature = (run, timeout))]
    fn wait_for_leave(&self, py: Python<'_>, run: Option<&str>, timeout: f64) -> PyResult<bool> {
        let timeout = duration(timeout)?;
        let began = Instant::now();
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            if py.detach(|| self.has_left(run, left.min(SIGNAL_POLL))) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            py.check_signals()?;
        }
    }

    /// Ends the server.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| {
            let server = self
                .server
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            drop(server);
        });
    }
}

impl RendezvousServer {
    fn has_left(&self, run: Option<&str>, timeout: Duration) -> bool {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        (server.as_ref()).is_none_or(|server| server.wait_for_leave(run, 0, timeout))
    }
}

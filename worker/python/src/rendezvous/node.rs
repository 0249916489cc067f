//! A node of a rendezvous.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use elasticrun_core::rendezvous::{Failure, NodeId, Settings};
use elasticrun_rendezvous::{Cluster, Error, JoinError, Node, Observed, Pending};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
};

use super::{SIGNAL_POLL, Tls, duration, place, raised};
use crate::error;

/// A node of a run. Its thread sends heartbeats and follows the state, without the GIL.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct RendezvousNode {
    node: Mutex<Option<Node>>,
    place: String,
}

#[pymethods]
impl RendezvousNode {
    /// Starts the thread. `text` is the endpoint of a server, or `etcd://...`, which is reached with the files `tls`. `options`
    /// are those of `--rdzv-conf`. Raises ValueError for a wrong one.
    #[new]
    #[pyo3(signature = (text, run, id, nodes, options, tls=None))]
    fn new(
        py: Python<'_>,
        text: &str,
        run: &str,
        id: &str,
        nodes: (usize, usize),
        options: Vec<(String, String)>,
        tls: Option<Tls>,
    ) -> PyResult<Self> {
        let invalid = |error: &dyn std::error::Error| PyValueError::new_err(error.to_string());
        let mut settings = Settings::new(nodes.0, nodes.1).map_err(|error| invalid(&error))?;
        for (key, value) in options {
            settings = settings
                .with(&key, &value)
                .map_err(|error| invalid(&error))?;
        }
        let id = NodeId::new(id).map_err(|error| invalid(&error))?;
        let place = place(text, tls.as_ref())?;
        let shown = place.to_string();
        let node = py.detach(|| Node::start(place, run, id, settings));
        let node = node.map_err(|error: Error| raised(py, &error))?;
        Ok(Self {
            node: Mutex::new(Some(node)),
            place: shown,
        })
    }

    /// Becomes a participant of the next round. Returns the round, the rank and the number of nodes. Gives up if the server is
    /// out of reach for `unreachable` seconds.
    ///
    /// Raises RendezvousClosed, RendezvousReleased, RendezvousTimeout, RendezvousCorrupt or RendezvousUnreachable.
    fn join(&self, py: Python<'_>, unreachable: f64) -> PyResult<(u64, u32, u32)> {
        let limit = duration(unreachable)?;
        let mut pending = self.with_node(Node::join)?;
        let mut lost: Option<Instant> = None;
        loop {
            if let Some(joined) = py.detach(|| pending.poll(SIGNAL_POLL)) {
                let joined = joined.map_err(|error| self.failed(py, &error))?;
                return Ok((joined.round.0, joined.rank.0, joined.world_size));
            }
            py.check_signals()?;
            if self.observed()?.connected {
                lost = None;
            } else if lost.get_or_insert_with(Instant::now).elapsed() >= limit {
                let failure = JoinError::Failed(Failure::Unreachable);
                return Err(self.failed(py, &failure));
            }
        }
    }

    /// Closes the rendezvous for all nodes. Raises as `join`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let pending = self.with_node(Node::close)?;
        self.wait(py, pending, Duration::MAX).map(drop)
    }

    /// Leaves the rendezvous. Whether that is done within `timeout` seconds. Raises as `join`.
    fn exit(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = duration(timeout)?;
        let pending = self.with_node(Node::exit)?;
        self.wait(py, pending, timeout)
    }

    /// Waits until no other node is in the run. Whether that is so within `timeout` seconds.
    fn wait_for_leave(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = duration(timeout)?;
        let began = Instant::now();
        loop {
            let known = self.observed()?;
            let left = timeout.saturating_sub(began.elapsed());
            if known.others == 0 || left.is_zero() {
                return Ok(known.others == 0);
            }
            py.detach(|| {
                self.with_node(|node| node.wait_for_change(&known, left.min(SIGNAL_POLL)))
            })?;
            py.check_signals()?;
        }
    }

    /// The id of the node with rank 0 in the round that was joined last. None before, and if it had left at once.
    #[getter]
    fn first(&self) -> PyResult<Option<String>> {
        let first = self.with_node(Node::first)?;
        Ok(first.map(|first| first.to_string()))
    }

    /// Ends the thread and the connection. The node has left before, or others notice by missing heartbeats.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| {
            let node = self
                .node
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            drop(node);
        });
    }

    /// Whether no further round forms, as far as this node knows.
    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.observed()?.closed)
    }

    /// The number of nodes that wait for this one to join again. If it lost its place in the round, or others have left it, at
    /// least 1.
    #[getter]
    fn nodes_waiting(&self) -> PyResult<usize> {
        let observed = self.observed()?;
        Ok(match observed.asks_to_join_again() {
            true => observed.waiting.max(observed.left).max(1),
            false => 0,
        })
    }
}

impl RendezvousNode {
    fn with_node<T>(&self, ask: impl FnOnce(&Node) -> T) -> PyResult<T> {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let node = node.as_ref();
        node.map(ask)
            .ok_or_else(|| PyRuntimeError::new_err("the rendezvous handler is shut down"))
    }

    fn observed(&self) -> PyResult<Observed> {
        self.with_node(Node::observed)
    }

    fn wait(&self, py: Python<'_>, mut pending: Pending<()>, timeout: Duration) -> PyResult<bool> {
        let began = Instant::now();
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            if let Some(done) = py.detach(|| pending.poll(left.min(SIGNAL_POLL))) {
                return done.map(|()| true).map_err(|error| self.failed(py, &error));
            }
            if left.is_zero() {
                return Ok(false);
            }
            py.check_signals()?;
        }
    }

    /// The exception for a request that failed.
    fn failed(&self, py: Python<'_>, error: &JoinError) -> PyErr {
        let class = match error {
            JoinError::Released => "RendezvousReleased",
            JoinError::Failed(Failure::Closed) => "RendezvousClosed",
            JoinError::Failed(Failure::Timeout | Failure::Full) => "RendezvousTimeout",
            JoinError::Failed(Failure::Corrupt(_)) => "RendezvousCorrupt",
            JoinError::Failed(Failure::Unreachable) => "RendezvousUnreachable",
            JoinError::Failed(Failure::Cancelled) | JoinError::Ended => "RendezvousError",
        };
        let text = match error {
            JoinError::Failed(Failure::Unreachable) => {
                let place = &self.place;
                match place.starts_with(Cluster::SCHEME) {
                    true => {
                        format!("no rendezvous in {place}: etcd cannot be reached, or refuses it")
                    }
                    false => format!(
                        "no rendezvous at {place}: its server has ended or cannot be reached"
                    ),
                }
            }
            error => error.to_string(),
        };
        error::exception(py, class, text)
    }
}

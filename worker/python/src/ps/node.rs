//! A node.

use std::{collections::BTreeMap, mem::ManuallyDrop};

use elasticrun_ps::{Group, NodeId, Options, Postoffice, Recipients};
use pyo3::{exceptions::PyValueError, prelude::*};

use super::{interruptible, raised};
use crate::error;

/// A node of a job.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PsNode {
    postoffice: ManuallyDrop<Postoffice>,
    process: u32,
}

#[pymethods]
impl PsNode {
    /// Starts a node with these variables, and waits until all nodes are there. Raises PsConfigError or PsStartError.
    #[new]
    fn new(py: Python<'_>, variables: BTreeMap<String, String>, barrier: bool) -> PyResult<Self> {
        let started = interruptible(py, move || {
            let options = Options::from_variables(&variables)?;
            match barrier {
                true => Postoffice::start(options),
                false => Postoffice::start_async(options),
            }
        })?;
        let postoffice = started.map_err(|error| raised(py, &error))?;
        Ok(Self {
            postoffice: ManuallyDrop::new(postoffice),
            process: std::process::id(),
        })
    }

    #[getter]
    fn id(&self) -> u32 {
        self.postoffice.my_id().0
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.postoffice.my_rank()
    }

    #[getter]
    fn role(&self) -> String {
        self.postoffice.role().to_string()
    }

    #[getter]
    fn num_servers(&self) -> u32 {
        self.postoffice.num_servers()
    }

    #[getter]
    fn num_workers(&self) -> u32 {
        self.postoffice.num_workers()
    }

    #[getter]
    fn is_recovery(&self) -> bool {
        self.postoffice.is_recovery()
    }

    /// The nodes of a group, or the node with this id.
    fn node_ids(&self, to: u32) -> PyResult<Vec<u32>> {
        let ids = self.postoffice.node_ids(recipients(to)?);
        Ok(ids.into_iter().map(|id| id.0).collect())
    }

    /// The nodes that this one knows to be dead.
    fn dead_nodes(&self) -> Vec<u32> {
        let dead = self.postoffice.dead_nodes();
        dead.into_iter().map(|id| id.0).collect()
    }

    /// Waits until all nodes of a group are here. Raises PsTimeout or PsNodeLost.
    fn barrier(&self, py: Python<'_>, group: u32) -> PyResult<()> {
        let group = Group::from_mask(group).ok_or_else(|| {
            PyValueError::new_err(format!("group {group}: expected a sum of 1, 2 and 4"))
        })?;
        let postoffice = self.get(py)?.clone();
        let met = interruptible(py, move || postoffice.barrier(group))?;
        met.map_err(|error| raised(py, &error))
    }

    /// Saves the values of all servers, and returns the number of the snapshot. Raises PsError or PsNodeLost.
    fn snapshot(&self, py: Python<'_>) -> PyResult<u64> {
        let postoffice = self.get(py)?.clone();
        let taken = interruptible(py, move || postoffice.snapshot())?;
        taken.map_err(|error| raised(py, &error))
    }

    /// Has `callback()` called at the end of `finalize`.
    fn on_exit(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.get(py)?.register_exit_callback(move || {
            Python::try_attach(|py| {
                if let Err(error) = callback.call0(py) {
                    error.write_unraisable(py, Some(callback.bind(py)));
                }
            });
        });
        Ok(())
    }

    /// Ends the node, after a barrier of all or without. Raises PsNodeLost, and ends it all the same.
    fn finalize(&self, py: Python<'_>, barrier: bool) -> PyResult<()> {
        let postoffice = self.get(py)?.clone();
        let ended = interruptible(py, move || match barrier {
            true => postoffice.finalize(),
            false => {
                postoffice.finalize_async();
                Ok(())
            }
        })?;
        ended.map_err(|error| raised(py, &error))
    }
}

impl PsNode {
    /// The node, in the process that has started it.
    pub(super) fn get(&self, py: Python<'_>) -> PyResult<&Postoffice> {
        match std::process::id() == self.process {
            true => Ok(&self.postoffice),
            false => {
                let text = "a forked child has no node of the parameter server: start one in it";
                Err(error::exception(py, "ForkedError", text))
            }
        }
    }
}

impl Drop for PsNode {
    fn drop(&mut self) {
        // A forked child has the connections of its parent, and must not say goodbye on them.
        if std::process::id() != self.process {
            return;
        }
        // SAFETY: it is taken once, here.
        let postoffice = unsafe { ManuallyDrop::take(&mut self.postoffice) };
        // The node waits for its threads, which may wait for the GIL.
        Python::try_attach(|py| py.detach(|| drop(postoffice)));
    }
}

/// A group for a mask of 1 to 7, else a node.
pub(super) fn recipients(to: u32) -> PyResult<Recipients> {
    let node = NodeId(to);
    match (Group::from_mask(to), node.role()) {
        (Some(group), _) => Ok(group.into()),
        (None, Some(_)) => Ok(node.into()),
        (None, None) => Err(PyValueError::new_err(format!(
            "{to}: no group (1 to 7) and no id of a node (8 or more)"
        ))),
    }
}

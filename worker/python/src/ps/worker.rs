//! The worker's side.

use std::{sync::Arc, time::Instant};

use elasticrun_ps::{
    Array, DType, Error, Expect, RequestOptions,
    dynamic::{self, AnyPull, AnyWorker},
};
use pyo3::prelude::*;

use super::{
    Buffer, PsNode, PsRequest, SIGNAL_POLL, array, elements, mut_elements, raised,
    request::{Sender, callback},
};
use crate::dtype;

/// Pushes and pulls the values of an app.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PsWorker {
    node: Py<PsNode>,
    dtype: DType,
    worker: Arc<dyn AnyWorker>,
}

/// `cmd`, `priority` and `callback(error or None)` of a request.
type Options = (i32, i32, Option<Py<PyAny>>);

#[pymethods]
impl PsWorker {
    /// A customer of an app. Raises PsConfigError if the process has it already.
    #[new]
    fn new(
        py: Python<'_>,
        node: Py<PsNode>,
        dtype: &str,
        app: u32,
        customer: u32,
    ) -> PyResult<Self> {
        let dtype = dtype::dtype(dtype)?;
        let worker = dynamic::new_worker(node.get().get(py)?, dtype, app, customer);
        let worker = worker.map_err(|error| raised(py, &error))?;
        Ok(Self {
            node,
            dtype,
            worker: Arc::from(worker),
        })
    }

    /// Adds values to those of the servers. `keep` keeps the buffers alive. Raises PsBadRequest, PsNodeLost, PsTimeout.
    fn push(
        &self,
        py: Python<'_>,
        keys: Buffer,
        values: Buffer,
        lens: Option<Buffer>,
        options: Options,
        keep: Py<PyAny>,
    ) -> PyResult<PsRequest> {
        let keys = array::<u64>(keys, keep.clone_ref(py))?;
        let lens = self.lens(py, lens, &keep)?;
        let options = request_options(options, lens);
        let values = elements(self.dtype, values, keep)?;
        self.wait_for_space(py)?;
        // SAFETY: the elements are of the type of the worker.
        let pushed = py.detach(|| unsafe { self.worker.push(keys, values, options) });
        let timestamp = pushed.map_err(|error| raised(py, &error))?;
        Ok(self.request(py, timestamp, None))
    }

    /// Reads values: `per_key` for each key, or as many as `lens` says, into `out`. Without both, the servers know the number,
    /// and `out` is None. `keep` keeps the buffers alive. Raises as `push`.
    #[allow(
        clippy::too_many_arguments,
        reason = "Python's side has names for them"
    )]
    fn pull(
        &self,
        py: Python<'_>,
        keys: Buffer,
        per_key: Option<usize>,
        lens: Option<Buffer>,
        out: Option<Buffer>,
        options: Options,
        keep: Py<PyAny>,
    ) -> PyResult<PsRequest> {
        let keys = array::<u64>(keys, keep.clone_ref(py))?;
        let expect = match (self.lens(py, lens, &keep)?, per_key) {
            (Some(lens), _) => Expect::Lens(lens),
            (None, Some(per_key)) => Expect::PerKey(per_key),
            (None, None) => Expect::Unknown,
        };
        let options = request_options(options, None);
        let out = out.map(|out| mut_elements(self.dtype, out, keep));
        let out = out.transpose()?;
        self.wait_for_space(py)?;
        // SAFETY: the elements are of the type of the worker.
        let pull = py.detach(|| unsafe { self.worker.pull(keys, expect, out, options) });
        self.pulling(py, pull)
    }

    /// Adds values and reads the sums into `out`. `keep` keeps the buffers alive. Raises as `push`.
    #[allow(
        clippy::too_many_arguments,
        reason = "Python's side has names for them"
    )]
    fn push_pull(
        &self,
        py: Python<'_>,
        keys: Buffer,
        values: Buffer,
        lens: Option<Buffer>,
        out: Buffer,
        options: Options,
        keep: Py<PyAny>,
    ) -> PyResult<PsRequest> {
        let keys = array::<u64>(keys, keep.clone_ref(py))?;
        let lens = self.lens(py, lens, &keep)?;
        let options = request_options(options, lens);
        let values = elements(self.dtype, values, keep.clone_ref(py))?;
        let out = mut_elements(self.dtype, out, keep)?;
        self.wait_for_space(py)?;
        // SAFETY: the elements are of the type of the worker.
        let pull = py.detach(|| unsafe { self.worker.push_pull(keys, values, Some(out), options) });
        self.pulling(py, pull)
    }
}

impl PsWorker {
    fn lens(
        &self,
        py: Python<'_>,
        lens: Option<Buffer>,
        keep: &Py<PyAny>,
    ) -> PyResult<Option<Array<u32>>> {
        lens.map(|lens| array::<u32>(lens, keep.clone_ref(py)))
            .transpose()
    }

    /// Waits until a request can be sent at once. If that takes too long, the request raises the error.
    fn wait_for_space(&self, py: Python<'_>) -> PyResult<()> {
        let postoffice = self.node.get().get(py)?;
        let deadline = Instant::now() + postoffice.options().request_timeout;
        while !py.detach(|| postoffice.wait_for_space(SIGNAL_POLL)) && Instant::now() < deadline {
            py.check_signals()?;
        }
        Ok(())
    }

    fn pulling(
        &self,
        py: Python<'_>,
        pull: Result<Box<dyn AnyPull>, Error>,
    ) -> PyResult<PsRequest> {
        let pull = pull.map_err(|error| raised(py, &error))?;
        Ok(self.request(py, pull.timestamp(), Some(pull)))
    }

    fn request(
        &self,
        py: Python<'_>,
        timestamp: elasticrun_ps::Timestamp,
        pull: Option<Box<dyn AnyPull>>,
    ) -> PsRequest {
        let sender = Sender::Worker(Arc::clone(&self.worker));
        PsRequest::new(self.node.clone_ref(py), sender, timestamp, pull)
    }
}

fn request_options((cmd, priority, then): Options, lens: Option<Array<u32>>) -> RequestOptions {
    RequestOptions {
        lens,
        cmd,
        priority,
        callback: then.map(callback),
    }
}

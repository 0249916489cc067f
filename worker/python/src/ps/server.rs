//! The server's side.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use elasticrun_ps::{
    DType, Expected, Lens, Refusal, RequestMeta,
    dynamic::{self, AnyHandler, AnyPairs, AnyServer},
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyByteArray};

use super::{Buffer, PsNode, count, raised};
use crate::{dtype, error};

/// An app of a server.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PsServer {
    server: Box<dyn AnyServer>,
}

#[pymethods]
impl PsServer {
    /// Registers `handler(request)`, or the store that adds up. Requests that have come already are handled before this returns.
    /// Raises PsConfigError if the process has a handler of this app already.
    #[new]
    fn new(
        py: Python<'_>,
        node: Py<PsNode>,
        dtype: &str,
        app: u32,
        handler: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let dtype = dtype::dtype(dtype)?;
        let postoffice = node.get().get(py)?;
        let made = py.detach(|| match handler {
            None => dynamic::new_summing_server(postoffice, dtype, app),
            Some(call) => {
                let handler = Handler {
                    call,
                    dtype,
                    turn: Mutex::new(()),
                };
                dynamic::new_server(postoffice, dtype, app, handler)
            }
        });
        Ok(Self {
            server: made.map_err(|error| raised(py, &error))?,
        })
    }

    /// Takes the handler away. Later requests wait for another one.
    fn remove(&self) {
        self.server.remove();
    }
}

/// A handler in Python.
struct Handler {
    call: Py<PyAny>,
    dtype: DType,
    /// Calls come one after the other, as Python may switch threads in the middle of one.
    turn: Mutex<()>,
}

impl AnyHandler for Handler {
    fn handle(&self, meta: &RequestMeta, pairs: AnyPairs<'_>, server: &dyn AnyServer) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let called = Python::try_attach(|py| {
            let request = PsServerRequest::new(py, self.dtype, meta, pairs, server.share());
            let request = Py::new(py, request)?;
            self.call.call1(py, (request,)).map(drop)
        });
        let text = match called {
            Some(Ok(())) => return,
            Some(Err(error)) => error.to_string(),
            None => "the server's interpreter ends".to_owned(),
        };
        server.refuse(meta, &Refusal::Handler(text));
    }
}

/// A request that a handler got.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PsServerRequest {
    meta: RequestMeta,
    server: Arc<dyn AnyServer>,
    dtype: DType,
    #[pyo3(get)]
    keys: Py<PyByteArray>,
    #[pyo3(get)]
    values: Py<PyByteArray>,
    #[pyo3(get)]
    lens: Option<Py<PyByteArray>>,
    #[pyo3(get)]
    expected_per_key: Option<usize>,
    #[pyo3(get)]
    expected_lens: Option<Py<PyByteArray>>,
    /// Number of values that the answer must have.
    total: Option<usize>,
    answered: AtomicBool,
}

#[pymethods]
impl PsServerRequest {
    #[getter]
    fn cmd(&self) -> i32 {
        self.meta.cmd()
    }

    #[getter]
    fn is_push(&self) -> bool {
        self.meta.is_push()
    }

    #[getter]
    fn is_pull(&self) -> bool {
        self.meta.is_pull()
    }

    #[getter]
    fn sender(&self) -> u32 {
        self.meta.sender().0
    }

    #[getter]
    fn timestamp(&self) -> u64 {
        self.meta.timestamp()
    }

    #[getter]
    fn customer(&self) -> u32 {
        self.meta.customer()
    }

    /// Whether it is answered.
    #[getter]
    fn answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }

    /// Answers it. The values are copied. Raises ValueError if there are not as many as the worker expects, PsError if it is
    /// answered already.
    #[pyo3(signature = (values = None, lens = None))]
    fn respond(
        &self,
        py: Python<'_>,
        values: Option<Buffer>,
        lens: Option<Vec<u32>>,
    ) -> PyResult<()> {
        let (address, nbytes) = values.unwrap_or_default();
        let given = count((address, nbytes), dynamic::size_of(self.dtype))?;
        if let Some(total) = self.total
            && given != total
        {
            return Err(PyValueError::new_err(format!(
                "the handler gave {given} values and the request asks for {total}"
            )));
        }
        if let Some(lens) = &lens
            && lens.iter().map(|&len| len as usize).sum::<usize>() != given
        {
            return Err(PyValueError::new_err(format!(
                "the lens of the handler's {given} values do not add up to their number"
            )));
        }
        self.answer(py)?;
        // Aligned for every type.
        let mut copy = vec![0u64; nbytes.div_ceil(8)];
        if nbytes > 0 {
            let source = std::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: the caller keeps so many bytes alive, and the copy has space for them.
            unsafe {
                std::ptr::copy_nonoverlapping(source, copy.as_mut_ptr().cast::<u8>(), nbytes);
            }
        }
        // The worker knows the lens that it has asked for.
        let lens = lens.filter(|_| self.total.is_none()).map(Into::into);
        py.detach(|| {
            let first = copy.as_ptr().cast();
            // SAFETY: the vector has so many elements of the type of the server, and they do not move with it.
            unsafe {
                let values = dynamic::Elements::new(first, given, copy);
                self.server.respond(&self.meta, values, lens);
            }
        });
        Ok(())
    }

    /// Answers it with an error. Raises PsError if it is answered already.
    fn refuse(&self, py: Python<'_>, reason: String) -> PyResult<()> {
        self.answer(py)?;
        py.detach(|| {
            self.server.refuse(&self.meta, &Refusal::Handler(reason));
        });
        Ok(())
    }
}

impl PsServerRequest {
    fn new(
        py: Python<'_>,
        dtype: DType,
        meta: &RequestMeta,
        pairs: AnyPairs<'_>,
        server: Arc<dyn AnyServer>,
    ) -> Self {
        let bytes = |bytes: &[u8]| PyByteArray::new(py, bytes).unbind();
        let lens = |lens: Lens<'_>| match lens {
            Lens::Uniform(_) => None,
            Lens::Mixed(lens) => Some(bytes(bytes_of(lens))),
        };
        let pull = meta.is_pull().then_some(pairs.expected);
        let (per_key, expected_lens, total) = match pull {
            Some(Expected::Known(expected)) => {
                let total = expected.total(0, pairs.keys.len());
                match expected {
                    Lens::Uniform(per_key) => (Some(per_key), None, Some(total)),
                    Lens::Mixed(_) => (None, lens(expected), Some(total)),
                }
            }
            Some(Expected::Unknown) => (None, None, None),
            None => (None, None, Some(0)),
        };
        Self {
            server,
            dtype,
            keys: bytes(bytes_of(pairs.keys)),
            values: bytes(pairs.values),
            lens: lens(pairs.lens),
            expected_per_key: per_key,
            expected_lens,
            total,
            meta: meta.clone(),
            answered: AtomicBool::new(false),
        }
    }

    fn answer(&self, py: Python<'_>) -> PyResult<()> {
        match self.answered.swap(true, Ordering::SeqCst) {
            true => Err(error::exception(
                py,
                "PsError",
                "the request is answered already",
            )),
            false => Ok(()),
        }
    }
}

/// The memory of keys or lens.
fn bytes_of<T: bytemuck::NoUninit>(numbers: &[T]) -> &[u8] {
    bytemuck::cast_slice(numbers)
}

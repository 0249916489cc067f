//! Simple requests: a number and some bytes.

use elasticrun_ps::{Refusal, RequestHandler, SimpleApp, SimpleData};
use pyo3::{prelude::*, types::PyBytes};

use super::{PsNode, PsRequest, node::recipients, raised, request::Sender};

/// An app that sends and handles simple requests.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PsSimpleApp {
    node: Py<PsNode>,
    app: SimpleApp,
}

#[pymethods]
impl PsSimpleApp {
    /// Registers `on_request(head, body, sender, timestamp) -> answer` and `on_response(...)`, on threads of the node. Raises
    /// PsConfigError if the process has this app already.
    #[new]
    fn new(
        py: Python<'_>,
        node: Py<PsNode>,
        app: u32,
        on_request: Option<Py<PyAny>>,
        on_response: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let postoffice = node.get().get(py)?;
        let made = py.detach(|| {
            let respond: RequestHandler = match on_request {
                Some(call) => {
                    Box::new(move |data: &SimpleData, app: &SimpleApp| answer(&call, data, app))
                }
                None => SimpleApp::echo_nothing(),
            };
            let note = move |data: &SimpleData| {
                let Some(call) = &on_response else { return };
                Python::try_attach(|py| {
                    if let Err(error) = call.call1(py, arguments(py, data)) {
                        error.write_unraisable(py, Some(call.bind(py)));
                    }
                });
            };
            SimpleApp::new(postoffice, app, respond, Box::new(note))
        });
        Ok(Self {
            app: made.map_err(|error| raised(py, &error))?,
            node,
        })
    }

    /// Sends a request to a node or a group. It is completed when all have answered. Raises PsNodeLost, PsTimeout.
    fn request(&self, py: Python<'_>, head: i32, body: &[u8], to: u32) -> PyResult<PsRequest> {
        self.node.get().get(py)?;
        let to = recipients(to)?;
        let sent = py.detach(|| self.app.request(head, body, to));
        let timestamp = sent.map_err(|error| raised(py, &error))?;
        let sender = Sender::Simple(self.app.clone());
        Ok(PsRequest::new(
            self.node.clone_ref(py),
            sender,
            timestamp,
            None,
        ))
    }
}

type Arguments<'py> = (i32, Bound<'py, PyBytes>, u32, u64);

fn arguments<'py>(py: Python<'py>, data: &SimpleData) -> Arguments<'py> {
    let body = PyBytes::new(py, &data.body);
    (data.head, body, data.sender.0, data.timestamp)
}

/// Answers a request with what the handler returns.
fn answer(call: &Py<PyAny>, data: &SimpleData, app: &SimpleApp) {
    let called = Python::try_attach(|py| {
        let answer = call.call1(py, arguments(py, data))?;
        answer.extract::<Vec<u8>>(py)
    });
    match called {
        Some(Ok(body)) => app.respond(data, body),
        Some(Err(error)) => app.refuse(data, &Refusal::Handler(error.to_string())),
        None => {
            let text = "the interpreter of the node ends".to_owned();
            app.refuse(data, &Refusal::Handler(text));
        }
    }
}

//! Simple requests: a number and some bytes, to a node or a group.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    core::{
        frame::{FAILURE, Header, Kind, REQUEST},
        node::{NodeId, Recipients},
        tracker::Timestamp,
    },
    customer::Customer,
    error::{Error, Refusal},
    net::{Connection, Payload, ReceiveError, Receiver, Scratch},
    node::{AnswerSink, Node, RequestSink, dispatch::answer_header},
    postoffice::Postoffice,
};

/// A request or an answer.
#[derive(Clone)]
pub struct SimpleData {
    /// A number.
    pub head: i32,
    /// Some bytes.
    pub body: Vec<u8>,
    /// Who sent it.
    pub sender: NodeId,
    /// The number of the request at its sender.
    pub timestamp: u64,
    header: Header,
    /// Where the answer goes. `None` if the request is from this node.
    from: Option<Arc<Connection>>,
}

impl fmt::Debug for SimpleData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimpleData")
            .field("head", &self.head)
            .field("body", &self.body)
            .field("sender", &self.sender)
            .field("timestamp", &self.timestamp)
            .finish_non_exhaustive()
    }
}

/// Handles a request: it must be answered once by [`SimpleApp::respond`], now or later.
pub type RequestHandler = Box<dyn Fn(&SimpleData, &SimpleApp) + Send + Sync>;
/// Is called for each answer.
pub type ResponseHandler = Box<dyn Fn(&SimpleData) + Send + Sync>;

/// An app that sends and handles simple requests.
#[derive(Clone)]
pub struct SimpleApp {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<Node>,
    customer: Customer,
    on_request: RequestHandler,
    on_response: ResponseHandler,
}

impl fmt::Debug for SimpleApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimpleApp")
            .field(&self.inner.customer)
            .finish()
    }
}

struct Sink(SimpleApp);

impl SimpleApp {
    /// Registers an app. Without handlers of a program, requests are answered with nothing: see [`SimpleApp::echo_nothing`].
    ///
    /// # Errors
    /// The process has this app already.
    pub fn new(
        postoffice: &Postoffice,
        app: u32,
        on_request: RequestHandler,
        on_response: ResponseHandler,
    ) -> Result<Self, Error> {
        let node = Arc::clone(postoffice.node());
        let inner = Arc::new(Inner {
            node: Arc::clone(&node),
            customer: Customer::new(Arc::clone(&node), app, app),
            on_request,
            on_response,
        });
        let this = Self { inner };
        let answers = Arc::new(Sink(this.clone()));
        node.registry
            .add_customer(Kind::Simple, app, app, answers)?;
        node.registry
            .add_app(Kind::Simple, app, Arc::new(Sink(this.clone())))?;
        Ok(this)
    }

    /// A handler that answers each request with nothing.
    pub fn echo_nothing() -> RequestHandler {
        Box::new(|request, app| app.respond(request, Vec::new()))
    }

    /// Sends a request. It is completed when all recipients have answered.
    ///
    /// # Errors
    /// A recipient is lost, or too much waits to be sent.
    pub fn request(
        &self,
        head: i32,
        body: impl Into<Vec<u8>>,
        to: impl Into<Recipients>,
    ) -> Result<Timestamp, Error> {
        let inner = &self.inner;
        let node = &inner.node;
        let (servers, workers) = node.counts();
        let recipients = to.into().node_ids(servers, workers);
        let body = Bytes::from(body.into());
        let timestamp = inner
            .customer
            .begin(recipients.iter().copied(), None, |_| {});
        let header = Header {
            app: inner.customer.app(),
            customer: inner.customer.id(),
            cmd: head,
            timestamp: timestamp.0,
            value_bytes: body.len() as u64,
            ..Header::new(Kind::Simple, REQUEST, node.id())
        };
        for to in recipients {
            if to == node.id() {
                let payload = Payload {
                    keys: &[],
                    lens: &[],
                    values: &body,
                };
                node.request(None, &header, payload);
                continue;
            }
            let parts = [Bytes::new(), Bytes::new(), body.clone()];
            if let Err(error) = node.send(to, header, parts, node.pace()) {
                inner.customer.fail(timestamp, error.clone());
                return Err(error);
            }
        }
        Ok(timestamp)
    }

    /// Answers a request.
    pub fn respond(&self, request: &SimpleData, body: impl Into<Vec<u8>>) {
        let inner = &self.inner;
        let body = Bytes::from(body.into());
        let header = Header {
            value_bytes: body.len() as u64,
            ..answer_header(&request.header, inner.node.id())
        };
        match &request.from {
            Some(from) => inner
                .node
                .answer(from, header, [Bytes::new(), Bytes::new(), body]),
            None => inner.answered(&header, &body),
        }
    }

    /// Answers a request with an error.
    pub fn refuse(&self, request: &SimpleData, refusal: &Refusal) {
        let inner = &self.inner;
        let node = inner.node.id();
        match &request.from {
            Some(from) => inner.node.refuse(from, &request.header, refusal),
            None => inner.customer.fail(
                Timestamp(request.timestamp),
                Error::Refused {
                    node,
                    refusal: refusal.clone(),
                },
            ),
        }
    }

    /// Waits until all recipients of a request have answered, for the request timeout.
    ///
    /// # Errors
    /// A recipient is lost, or has not answered in time.
    pub fn wait(&self, timestamp: Timestamp) -> Result<(), Error> {
        let limit = self.inner.node.options.request_timeout;
        self.inner.customer.wait(timestamp, limit)
    }

    /// The customer.
    pub fn customer(&self) -> &Customer {
        &self.inner.customer
    }
}

impl Inner {
    fn answered(&self, header: &Header, body: &[u8]) {
        let (timestamp, from) = (Timestamp(header.timestamp), header.sender);
        if !self.customer.expects(timestamp, from) {
            return;
        }
        if header.has(FAILURE) {
            let refusal = serde_json::from_slice(body)
                .unwrap_or_else(|_| Refusal::Handler(String::from_utf8_lossy(body).into_owned()));
            self.customer.fail(
                timestamp,
                Error::Refused {
                    node: from,
                    refusal,
                },
            );
            return;
        }
        (self.on_response)(&data(header, body, None));
        self.customer.answered(timestamp, from);
    }
}

fn data(header: &Header, body: &[u8], from: Option<Arc<Connection>>) -> SimpleData {
    SimpleData {
        head: header.cmd,
        body: body.to_vec(),
        sender: header.sender,
        timestamp: header.timestamp,
        header: *header,
        from,
    }
}

impl AnswerSink for Sink {
    fn answer(
        &self,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<(), ReceiveError> {
        let payload = receiver.payload(header, scratch)?;
        self.0.inner.answered(header, payload.values);
        Ok(())
    }

    fn node_lost(&self, node: NodeId, error: &Error) {
        self.0.inner.customer.node_lost(node, error);
    }

    fn end_overdue(&self, limit: std::time::Duration, error: &Error) {
        let customer = &self.0.inner.customer;
        for timestamp in customer.overdue(limit) {
            customer.fail(timestamp, error.clone());
        }
    }
}

impl RequestSink for Sink {
    fn request(&self, from: Option<&Arc<Connection>>, header: &Header, payload: Payload<'_>) {
        let request = data(header, payload.values, from.cloned());
        (self.0.inner.on_request)(&request, &self.0);
    }
}

//! The server's side: handlers of requests.

use std::{fmt, marker::PhantomData, sync::Arc};

use bytes::Bytes;
use elasticrun_collectives::{DType, Element};

use crate::{
    array::Array,
    command::{Command, Reply},
    core::{
        frame::{Header, Kind, PULL, PUSH},
        keys::{self, KeyError, Lens},
        node::NodeId,
        store::Expected,
    },
    error::{Error, Refusal},
    net::{Connection, Payload},
    node::{Node, RequestSink, dispatch::answer_header},
    postoffice::Postoffice,
    simple::{SimpleApp, SimpleData},
};

/// What a request says beside keys and values, and where its answer goes. Clones may answer later, from any thread.
#[derive(Clone)]
pub struct RequestMeta {
    header: Header,
    from: Arc<Connection>,
}

impl fmt::Debug for RequestMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header.fmt(f)
    }
}

impl RequestMeta {
    /// The number that the worker gave.
    pub fn cmd(&self) -> i32 {
        self.header.cmd
    }

    /// Whether values are pushed.
    pub fn is_push(&self) -> bool {
        self.header.has(PUSH)
    }

    /// Whether values are pulled.
    pub fn is_pull(&self) -> bool {
        self.header.has(PULL)
    }

    /// The worker.
    pub fn sender(&self) -> NodeId {
        self.header.sender
    }

    /// The number of the request at its customer.
    pub fn timestamp(&self) -> u64 {
        self.header.timestamp
    }

    /// The customer of the worker.
    pub fn customer(&self) -> u32 {
        self.header.customer
    }
}

/// Keys and values of a request. They are valid during the call of the handler.
#[derive(Clone, Copy, Debug)]
pub struct KvPairs<'a, T> {
    /// The keys, strictly ascending.
    pub keys: &'a [u64],
    /// The pushed values, key by key. Empty if nothing is pushed.
    pub values: &'a [T],
    /// How many values are pushed for each key.
    pub lens: Lens<'a>,
    /// How many values a pull expects.
    pub expected: Expected<'a>,
}

/// The answer to a pull.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// The values, key by key.
    pub values: Array<T>,
    /// How many values each key has, if they differ and the worker does not know it.
    pub lens: Option<Array<u32>>,
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Self {
            values: Vec::new().into(),
            lens: None,
        }
    }
}

/// Handles the requests of an app. Requests of one worker come in order, those of several at once.
pub trait Handler<T: Element>: Send + Sync + 'static {
    /// Handles a request. It must be answered once, by [`KvServer::respond`] or [`KvServer::refuse`], now or later.
    fn handle(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>, server: &KvServer<T>);

    /// Answers a command of a worker. Needs [`KvServer::with_commands`].
    fn command(&self, _from: NodeId, _command: &Command, _server: &KvServer<T>) -> Reply {
        Reply::Unknown
    }

    /// A node has left or died.
    fn node_left(&self, _node: NodeId, _server: &KvServer<T>) {}

    /// Is called at least once in each heartbeat interval.
    fn on_time(&self, _server: &KvServer<T>) {}
}

impl<T: Element, F> Handler<T> for F
where
    F: Fn(&RequestMeta, KvPairs<'_, T>, &KvServer<T>) + Send + Sync + 'static,
{
    fn handle(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>, server: &KvServer<T>) {
        self(meta, pairs, server);
    }
}

/// An app of a server. Dropping the last clone does not remove it: it ends with the node, or by [`KvServer::remove`].
pub struct KvServer<T> {
    node: Arc<Node>,
    app: u32,
    values: PhantomData<fn() -> T>,
}

impl<T> Clone for KvServer<T> {
    fn clone(&self) -> Self {
        Self {
            node: Arc::clone(&self.node),
            app: self.app,
            values: PhantomData,
        }
    }
}

impl<T> fmt::Debug for KvServer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvServer")
            .field("app", &self.app)
            .finish_non_exhaustive()
    }
}

struct Sink<T: Element> {
    server: KvServer<T>,
    handler: Box<dyn Handler<T>>,
}

impl<T: Element> KvServer<T> {
    /// Registers the handler of an app. Requests that have come already are handled before this returns.
    ///
    /// # Errors
    /// The process has a handler of this app already.
    pub fn new(postoffice: &Postoffice, app: u32, handler: impl Handler<T>) -> Result<Self, Error> {
        Ok(Self::register(postoffice, app, handler)?.server.clone())
    }

    /// [`new`](Self::new) for a handler that takes commands: those of [`ServerControl`](crate::ServerControl). They come as
    /// simple requests, so no [`SimpleApp`] of the process may have this number.
    ///
    /// # Errors
    /// The process has a handler or a simple app of this number already.
    pub fn with_commands(
        postoffice: &Postoffice,
        app: u32,
        handler: impl Handler<T>,
    ) -> Result<Self, Error> {
        let sink = Self::register(postoffice, app, handler)?;
        let server = sink.server.clone();
        let answer = move |request: &SimpleData, simple: &SimpleApp| {
            let reply = match Command::decode(&request.body) {
                Some(command) => sink.handler.command(request.sender, &command, &sink.server),
                None => Reply::Unknown,
            };
            simple.respond(request, reply.encode());
        };
        SimpleApp::new(postoffice, app, Box::new(answer), Box::new(|_| {}))?;
        Ok(server)
    }

    fn register(
        postoffice: &Postoffice,
        app: u32,
        handler: impl Handler<T>,
    ) -> Result<Arc<Sink<T>>, Error> {
        if postoffice.options().elastic {
            let why = "an elastic job (PS_ELASTIC=1) has no server with a handler: start an ElasticServer";
            return Err(Error::Options(why.to_owned()));
        }
        let node = Arc::clone(postoffice.node());
        let server = Self {
            node: Arc::clone(&node),
            app,
            values: PhantomData,
        };
        let sink = Arc::new(Sink {
            server,
            handler: Box::new(handler),
        });
        let registered: Arc<dyn RequestSink> = Arc::<Sink<T>>::clone(&sink);
        node.registry.add_app(Kind::Data, app, registered)?;
        Ok(sink)
    }

    /// Takes the handler away. Later requests wait for another one.
    pub fn remove(&self) {
        self.node.registry.remove_app(Kind::Data, self.app);
    }

    /// Answers a request.
    pub fn respond(&self, meta: &RequestMeta, answer: Answer<T>) {
        let lens = answer.lens.as_ref().map_or(0, |lens| lens.len());
        let header = answer_header(&meta.header, self.node.id());
        let values = answer.values.bytes();
        let per_key = answer.values.len().checked_div(meta.header.keys as usize);
        let header = Header {
            dtype: T::DTYPE as u8,
            lens: lens as u32,
            per_key: per_key.and_then(|len| u32::try_from(len).ok()).unwrap_or(0),
            value_bytes: values.len() as u64,
            ..header
        };
        let lens = answer.lens.map_or_else(Bytes::new, |lens| lens.bytes());
        self.node
            .answer(&meta.from, header, [Bytes::new(), lens, values]);
    }

    /// Whether a request that has waited is still cut by the map of now.
    pub(crate) fn recheck(&self, meta: &RequestMeta) -> Result<(), Refusal> {
        self.check_map(&meta.header)
    }

    fn check_map(&self, header: &Header) -> Result<(), Refusal> {
        let version = self.node.map().version();
        match header.map_version == version {
            true => Ok(()),
            false => Err(Refusal::OtherMap { version }),
        }
    }

    /// Answers a request with an error.
    pub fn refuse(&self, meta: &RequestMeta, refusal: &Refusal) {
        self.node.refuse(&meta.from, &meta.header, refusal);
    }
}

impl<T: Element> Sink<T> {
    fn check<'a>(&self, header: &Header, payload: Payload<'a>) -> Result<KvPairs<'a, T>, Refusal> {
        if header.dtype != T::DTYPE as u8 {
            return Err(Refusal::TypeDiffers {
                expected: DType::name(T::DTYPE as u8).to_owned(),
                found: DType::name(header.dtype).to_owned(),
            });
        }
        self.server.check_map(header)?;
        pairs(header, payload).map_err(|error| Refusal::BadRequest(error.to_string()))
    }
}

/// The parts of a request, checked: a peer may have sent anything.
fn pairs<'a, T: Element>(
    header: &Header,
    payload: Payload<'a>,
) -> Result<KvPairs<'a, T>, KeyError> {
    let keys = payload.keys;
    keys::check_keys(keys)?;
    let lens = (!payload.lens.is_empty()).then_some(payload.lens);
    let size = size_of::<T>();
    let count = payload.values.len() / size;
    let uneven = KeyError::Uneven {
        keys: keys.len(),
        values: count,
    };
    if count * size != payload.values.len() {
        return Err(uneven);
    }
    let per_key = header.per_key as usize;
    let expected = match lens {
        Some(lens) => {
            let total = lens.iter().map(|&len| len as usize).sum();
            Expected::Known(keys::check_lens(keys.len(), Some(lens), total)?)
        }
        None if per_key == 0 => Expected::Unknown,
        None => Expected::Known(Lens::Uniform(per_key)),
    };
    let lens = match header.has(PUSH) {
        true => keys::check_lens(keys.len(), lens, count)?,
        false if count == 0 => Lens::Uniform(0),
        false => return Err(uneven),
    };
    // A length is a claim, and a pull of absent keys would take memory for it.
    let asked = match expected {
        Expected::Known(lens) => lens.total(0, keys.len()) as u64,
        Expected::Unknown => 0,
    };
    let max = keys::MAX_VALUE_BYTES / size as u64;
    if asked > max {
        return Err(keys::too_many("a number of values", asked, max));
    }
    Ok(KvPairs {
        keys,
        values: bytemuck::cast_slice(payload.values),
        lens,
        expected,
    })
}

impl<T: Element> RequestSink for Sink<T> {
    fn request(&self, from: Option<&Arc<Connection>>, header: &Header, payload: Payload<'_>) {
        let Some(from) = from else { return };
        match self.check(header, payload) {
            Ok(pairs) => {
                let meta = RequestMeta {
                    header: *header,
                    from: Arc::clone(from),
                };
                self.handler.handle(&meta, pairs, &self.server);
            }
            Err(refusal) => self.server.node.refuse(from, header, &refusal),
        }
    }

    fn node_left(&self, node: NodeId) {
        self.handler.node_left(node, &self.server);
    }

    fn on_time(&self) {
        self.handler.on_time(&self.server);
    }
}

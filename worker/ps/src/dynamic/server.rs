//! The server's side.

use std::{fmt, sync::Arc};

use elasticrun_collectives::{DType, Element};

use super::Elements;
use crate::{
    array::Array,
    core::{keys::Lens, store::Expected},
    elastic::{ElasticApp, ElasticServer},
    error::{Error, Refusal},
    postoffice::Postoffice,
    server::{Answer, Handler, KvPairs, KvServer, RequestMeta},
    summing::SummingHandler,
};

/// A [`KvServer`] of any type of values.
pub trait AnyServer: Send + Sync + fmt::Debug {
    /// See [`KvServer::respond`].
    ///
    /// # Safety
    /// The elements are of the type of this server. Nothing writes them before their owner is dropped.
    unsafe fn respond(&self, meta: &RequestMeta, values: Elements, lens: Option<Array<u32>>);

    /// See [`KvServer::refuse`].
    fn refuse(&self, meta: &RequestMeta, refusal: &Refusal);

    /// See [`KvServer::remove`].
    fn remove(&self);

    /// A clone, to answer later.
    fn share(&self) -> Arc<dyn AnyServer>;
}

/// Keys and values of a request. They are valid during the call of the handler.
#[derive(Clone, Copy, Debug)]
pub struct AnyPairs<'a> {
    /// The keys, strictly ascending.
    pub keys: &'a [u64],
    /// The pushed values, key by key, aligned for their type. Empty if nothing is pushed.
    pub values: &'a [u8],
    /// How many values are pushed for each key.
    pub lens: Lens<'a>,
    /// How many values a pull expects.
    pub expected: Expected<'a>,
}

/// Handles the requests of an app. See [`Handler`].
pub trait AnyHandler: Send + Sync + 'static {
    /// Handles a request. It must be answered once, now or later.
    fn handle(&self, meta: &RequestMeta, pairs: AnyPairs<'_>, server: &dyn AnyServer);
}

struct Adapter<H>(H);

impl<T: Element, H: AnyHandler> Handler<T> for Adapter<H> {
    fn handle(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>, server: &KvServer<T>) {
        let pairs = AnyPairs {
            keys: pairs.keys,
            values: bytemuck::cast_slice(pairs.values),
            lens: pairs.lens,
            expected: pairs.expected,
        };
        self.0.handle(meta, pairs, server);
    }
}

/// An app with a handler of its own. See [`KvServer::new`].
///
/// # Errors
/// As there.
pub fn new_server(
    postoffice: &Postoffice,
    dtype: DType,
    app: u32,
    handler: impl AnyHandler,
) -> Result<Box<dyn AnyServer>, Error> {
    let handler = Adapter(handler);
    with_element!(dtype, T => Ok(Box::new(KvServer::<T>::new(postoffice, app, handler)?)))
}

/// An app whose values are summed, see [`SummingHandler`]. In an elastic job it is the only one of an [`ElasticServer`].
///
/// # Errors
/// As for [`KvServer::new`].
pub fn new_summing_server(
    postoffice: &Postoffice,
    dtype: DType,
    app: u32,
) -> Result<Box<dyn AnyServer>, Error> {
    if postoffice.options().elastic {
        let server = ElasticServer::start(postoffice, [elastic_sums(dtype, app)])?;
        return Ok(Box::new(server));
    }
    with_element!(dtype, T => {
        let handler = SummingHandler::<T>::default();
        Ok(Box::new(KvServer::<T>::new(postoffice, app, handler)?))
    })
}

/// An app of an elastic server, whose values are summed. See [`ElasticApp::sums`].
pub fn elastic_sums(dtype: DType, app: u32) -> ElasticApp {
    with_element!(dtype, T => ElasticApp::sums::<T>(app))
}

/// No handler gets a request of an elastic server, so there is none to answer. It serves until its node ends.
impl AnyServer for ElasticServer {
    unsafe fn respond(&self, _: &RequestMeta, _: Elements, _: Option<Array<u32>>) {}

    fn refuse(&self, _: &RequestMeta, _: &Refusal) {}

    fn remove(&self) {}

    fn share(&self) -> Arc<dyn AnyServer> {
        Arc::new(self.clone())
    }
}

impl<T: Element> AnyServer for KvServer<T> {
    unsafe fn respond(&self, meta: &RequestMeta, values: Elements, lens: Option<Array<u32>>) {
        // SAFETY: as the caller promises.
        let values = unsafe { values.into_array::<T>() };
        Self::respond(self, meta, Answer { values, lens });
    }

    fn refuse(&self, meta: &RequestMeta, refusal: &Refusal) {
        Self::refuse(self, meta, refusal);
    }

    fn remove(&self) {
        Self::remove(self);
    }

    fn share(&self) -> Arc<dyn AnyServer> {
        Arc::new(self.clone())
    }
}

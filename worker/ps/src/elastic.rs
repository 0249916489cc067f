//! Elastic servers: they join, leave and fail while the job runs.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use elasticrun_collectives::Element;

use crate::{
    core::{
        elastic::{
            engine::Engine,
            map::App,
            store::{self, ElasticStore},
        },
        frame::{Header, Kind},
        optimizer::{Float, Optimizer, OptimizerError},
        store::Init,
    },
    error::Error,
    net::{Connection, Payload},
    node::{Node, RequestSink},
    postoffice::Postoffice,
};

/// An app of elastic servers: how its values are kept.
pub struct ElasticApp {
    app: u32,
    store: Box<dyn ElasticStore>,
}

impl ElasticApp {
    /// Sums of pushed values, for the keys that were pushed.
    pub fn sums<T: Element>(app: u32) -> Self {
        Self {
            app,
            store: store::sums::<T>(),
        }
    }

    /// Weights that an optimizer changes: a push is a gradient. New weights must begin with the same values on all servers. What the
    /// optimizer keeps moves and is replicated with the weights. Its numbers do not change while the job runs.
    ///
    /// # Errors
    /// The optimizer has a wrong number.
    pub fn optimizing<T: Float>(
        app: u32,
        init: Init<T>,
        optimizer: Optimizer,
    ) -> Result<Self, OptimizerError> {
        let store = store::optimized(init, optimizer)?;
        Ok(Self { app, store })
    }
}

impl fmt::Debug for ElasticApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElasticApp")
            .field("app", &self.app)
            .finish_non_exhaustive()
    }
}

/// A server whose ranges move. Clones are the same server.
#[derive(Clone)]
pub struct ElasticServer {
    node: Arc<Node>,
}

impl fmt::Debug for ElasticServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ElasticServer")
            .field(&self.node.id())
            .finish()
    }
}

/// Gives requests to the engine.
struct Sink(Arc<Node>);

impl RequestSink for Sink {
    fn request(&self, _: Option<&Arc<Connection>>, header: &Header, payload: Payload<'_>) {
        self.0.elastic_request(header, payload);
    }
}

impl ElasticServer {
    /// Serves these apps. All servers of a job must have the same ones, and all of them at once: from now on this server gets
    /// ranges.
    ///
    /// # Errors
    /// The job is not elastic, or this server serves already.
    pub fn start(
        postoffice: &Postoffice,
        apps: impl IntoIterator<Item = ElasticApp>,
    ) -> Result<Self, Error> {
        let node = Arc::clone(postoffice.node());
        let elastic = node.elastic.as_ref().ok_or_else(|| {
            Error::Options("this job is not elastic: set PS_ELASTIC=1 for all its nodes".to_owned())
        })?;
        let stores: BTreeMap<u32, Box<dyn ElasticStore>> =
            apps.into_iter().map(|app| (app.app, app.store)).collect();
        if stores.is_empty() {
            return Err(Error::Options("an elastic server needs an app".to_owned()));
        }
        let apps: Vec<App> = stores
            .iter()
            .map(|(&app, store)| App {
                app,
                dtype: store.dtype(),
                rule: store.rule().to_owned(),
            })
            .collect();
        for app in &apps {
            let sink = Arc::new(Sink(Arc::clone(&node)));
            node.registry.add_app(Kind::Data, app.app, sink)?;
        }
        node.serve_elastic(elastic, Engine::new(node.id(), stores), apps)?;
        Ok(Self { node })
    }

    /// Hands all values over to other servers, while the job goes on. Afterwards this node may end, by
    /// [`Postoffice::finalize_async`].
    ///
    /// # Errors
    /// It is the last server, the scheduler is lost, or the time is over. The server goes on to serve then.
    pub fn drain(&self, limit: Duration) -> Result<(), Error> {
        match &self.node.elastic {
            Some(elastic) => self.node.drain(elastic, limit),
            None => Ok(()),
        }
    }
}

//! Who in this process gets which frames.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    core::{elastic::map::ChainMap, frame::Header, frame::Kind, node::NodeId},
    error::Error,
    net::{Connection, Payload, ReceiveError, Receiver, Scratch},
};

/// Gets the answers to the requests of one customer.
pub(crate) trait AnswerSink: Send + Sync {
    /// Reads the payload of an answer, and notes it.
    fn answer(
        &self,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<(), ReceiveError>;
    /// A newer range map of an elastic job has come.
    fn map_changed(&self, _map: &ChainMap) {}
    /// A connection to another node of an elastic job is a new one.
    fn link_reset(&self, _peer: NodeId) {}
    /// A node will answer nothing any more.
    fn node_lost(&self, node: NodeId, error: &Error);
    /// The scheduler is lost, so nobody says who is dead. Is called at least once in each heartbeat interval.
    fn end_overdue(&self, limit: Duration, error: &Error);
}

/// Gets the requests to one app.
pub(crate) trait RequestSink: Send + Sync {
    /// Handles a request. `from` is its connection, `None` if it comes from this node.
    fn request(&self, from: Option<&Arc<Connection>>, header: &Header, payload: Payload<'_>);
    /// A node has left or died.
    fn node_left(&self, _node: NodeId) {}
    /// Is called at least once in each heartbeat interval.
    fn on_time(&self) {}
}

/// A request to an app that has no handler yet.
pub(crate) struct Parked {
    pub(crate) since: Instant,
    pub(crate) from: Option<Arc<Connection>>,
    pub(crate) header: Header,
    pub(crate) keys: Vec<u64>,
    pub(crate) lens: Vec<u32>,
    pub(crate) values: Vec<u64>,
}

impl Parked {
    fn new(from: Option<&Arc<Connection>>, header: &Header, payload: Payload<'_>) -> Self {
        let mut values = vec![0u64; payload.values.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<_, u8>(&mut values)[..payload.values.len()]
            .copy_from_slice(payload.values);
        Self {
            since: Instant::now(),
            from: from.cloned(),
            header: *header,
            keys: payload.keys.to_vec(),
            lens: payload.lens.to_vec(),
            values,
        }
    }

    fn bytes(&self) -> usize {
        self.header.payload() as usize + size_of::<Self>()
    }

    fn deliver(&self, sink: &dyn RequestSink) {
        let values: &[u8] = bytemuck::cast_slice(&self.values);
        let payload = Payload {
            keys: &self.keys,
            lens: &self.lens,
            values: &values[..self.header.value_bytes as usize],
        };
        sink.request(self.from.as_ref(), &self.header, payload);
    }
}

/// The handlers of an app are told apart by the kind of frames.
type App = (Kind, u32);

#[derive(Default)]
struct Inner {
    customers: BTreeMap<(Kind, u32, u32), Arc<dyn AnswerSink>>,
    apps: BTreeMap<App, Arc<dyn RequestSink>>,
    parked: BTreeMap<App, Vec<Parked>>,
    parked_bytes: usize,
    /// The apps whose handlers are about to have handled what was parked.
    registering: BTreeSet<App>,
}

/// Bytes of requests that wait for handlers. What comes beyond is refused at once.
const MAX_PARKED: usize = 256 << 20;

/// The customers and handlers of a node.
#[derive(Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    /// Signalled when an app is registered.
    registered: Condvar,
}

/// An app that registers. It ends also if its handler panics.
struct Registering<'a>(&'a Registry, App);

impl Drop for Registering<'_> {
    fn drop(&mut self) {
        self.0.lock().registering.remove(&self.1);
        self.0.registered.notify_all();
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_customer(
        &self,
        kind: Kind,
        app: u32,
        customer: u32,
        sink: Arc<dyn AnswerSink>,
    ) -> Result<(), Error> {
        let mut inner = self.lock();
        match inner.customers.contains_key(&(kind, app, customer)) {
            true => Err(Error::CustomerExists { app, customer }),
            false => {
                inner.customers.insert((kind, app, customer), sink);
                Ok(())
            }
        }
    }

    pub(crate) fn remove_customer(&self, kind: Kind, app: u32, customer: u32) {
        self.lock().customers.remove(&(kind, app, customer));
    }

    pub(crate) fn customer(&self, header: &Header) -> Option<Arc<dyn AnswerSink>> {
        let inner = self.lock();
        inner
            .customers
            .get(&(header.kind, header.app, header.customer))
            .cloned()
    }

    pub(crate) fn apps(&self) -> Vec<Arc<dyn RequestSink>> {
        self.lock().apps.values().cloned().collect()
    }

    pub(crate) fn customers(&self) -> Vec<Arc<dyn AnswerSink>> {
        self.lock().customers.values().cloned().collect()
    }

    /// Adds the handler of an app, after it has handled all requests that waited for it, in order.
    pub(crate) fn add_app(
        &self,
        kind: Kind,
        app: u32,
        sink: Arc<dyn RequestSink>,
    ) -> Result<(), Error> {
        let exists = Error::CustomerExists { app, customer: app };
        let _registering = {
            let mut inner = self.lock();
            let name = (kind, app);
            if inner.apps.contains_key(&name) || !inner.registering.insert(name) {
                return Err(exists);
            }
            Registering(self, name)
        };
        loop {
            let parked = {
                let mut inner = self.lock();
                match inner.parked.remove(&(kind, app)) {
                    // Those that come from other nodes meanwhile wait in their receiving threads, behind these.
                    Some(parked) if !parked.is_empty() => {
                        inner.parked_bytes -= parked.iter().map(Parked::bytes).sum::<usize>();
                        parked
                    }
                    _ => {
                        inner.apps.insert((kind, app), sink);
                        return Ok(());
                    }
                }
            };
            for request in parked {
                request.deliver(&*sink);
            }
        }
    }

    pub(crate) fn remove_app(&self, kind: Kind, app: u32) {
        self.lock().apps.remove(&(kind, app));
    }

    /// The handler of a request, or keeps the request for it. Gives the request back if there is no space.
    pub(crate) fn app_or_park(
        &self,
        from: Option<&Arc<Connection>>,
        header: &Header,
        payload: Payload<'_>,
    ) -> Result<Option<Arc<dyn RequestSink>>, Box<Parked>> {
        let mut inner = self.lock();
        let app = (header.kind, header.app);
        while from.is_some() && inner.registering.contains(&app) {
            let woken = self.registered.wait(inner);
            inner = woken.unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(sink) = inner.apps.get(&app) {
            return Ok(Some(Arc::clone(sink)));
        }
        let request = Parked::new(from, header, payload);
        if inner.parked_bytes + request.bytes() > MAX_PARKED {
            return Err(Box::new(request));
        }
        inner.parked_bytes += request.bytes();
        inner.parked.entry(app).or_default().push(request);
        Ok(None)
    }

    /// Takes the requests that have waited for so long.
    pub(crate) fn expired(&self, timeout: Duration) -> Vec<Parked> {
        let mut inner = self.lock();
        let mut expired = Vec::new();
        for parked in inner.parked.values_mut() {
            let late = parked
                .iter()
                .take_while(|request| request.since.elapsed() >= timeout)
                .count();
            expired.extend(parked.drain(..late));
        }
        inner.parked_bytes -= expired.iter().map(Parked::bytes).sum::<usize>();
        expired
    }
}

#[cfg(test)]
mod tests;

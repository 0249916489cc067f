//! What a node of an elastic job has beside others: the range map, the engine of a server, and connections that come back.
//!
//! A server sends to others only over connections of which its engine knows: when one is opened, all that may be lost is sent again,
//! before anything else is sent over it. What cannot be sent is dropped, since it is sent again then.

mod links;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{Control, Node, OF_NODE, lock, snapshots::Asked};
use crate::{
    core::{
        elastic::{
            engine::Engine,
            map::{App, ChainMap},
            message::{Body, Command, Message, Order, Report},
            wire::{self, Incoming},
        },
        frame::{FAILURE, Header},
        membership::Member,
        node::{NodeId, Role, SCHEDULER},
    },
    error::{Error, Refusal},
    net::{Connection, Outgoing, Pace, Payload},
    snapshot::SnapshotStore,
};

/// Time between two attempts to dial, and how long one waits for a connection.
const RETRY: Duration = Duration::from_millis(10);
const ATTEMPT: Duration = Duration::from_secs(1);

/// A limit that is none.
pub(super) const LONG: Duration = Duration::from_secs(365 * 24 * 3600);

/// The elastic state of a node.
#[derive(Debug, Default)]
pub(crate) struct Elastic {
    map: Mutex<Option<Arc<ChainMap>>>,
    /// Signalled when the first map comes, and when a drain ends.
    changed: Condvar,
    server: OnceLock<Mutex<Server>>,
    /// Nodes that came after the start.
    addresses: Mutex<BTreeMap<NodeId, SocketAddr>>,
    dialling: Mutex<BTreeSet<NodeId>>,
    /// When the heartbeats were sent that are not answered.
    beats: Mutex<VecDeque<Duration>>,
    /// Until when no other node takes this one for dead, in milliseconds since the start.
    lease: AtomicU64,
    /// What the scheduler has answered.
    accepted: Mutex<Option<Result<(), String>>>,
    drain: Mutex<Option<Result<(), String>>>,
    sessions: AtomicU32,
    /// Servers load values, and nothing is served before.
    loading: AtomicBool,
    /// The scheduler is lost.
    lost: Mutex<Option<Error>>,
    pub(super) snapshot: Asked,
}

/// The engine of a server, and what it sends over.
struct Server {
    engine: Engine,
    connections: BTreeMap<NodeId, Arc<Connection>>,
    held_since: Option<Instant>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Elastic {
    /// A number for a `KvWorker`.
    pub(crate) fn session(&self) -> u32 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for the first map.
    pub(crate) fn wait_for_map(&self, limit: Duration) -> Result<Arc<ChainMap>, Error> {
        let start = Instant::now();
        let mut map = lock(&self.map);
        loop {
            if let Some(map) = &*map {
                return Ok(Arc::clone(map));
            }
            if let Some(error) = &*lock(&self.lost) {
                return Err(error.clone());
            }
            let waited = limit;
            let rest = limit.checked_sub(start.elapsed());
            let rest = rest.or_else(|| self.while_loading());
            let rest = rest.filter(|_| !OF_NODE.get());
            let rest = rest.ok_or(Error::NoElasticServers { waited })?;
            let woken = self.changed.wait_timeout(map, rest);
            map = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How long to wait before the next look, while servers load values: that takes as long as there are values.
    fn while_loading(&self) -> Option<Duration> {
        self.loading.load(Ordering::SeqCst).then_some(ATTEMPT)
    }

    /// The scheduler does not let this server take part.
    pub(super) fn refused(&self, reason: String) {
        *lock(&self.accepted) = Some(Err(reason));
        self.notify();
    }

    /// Notes where a node that came later is.
    pub(super) fn add_address(&self, member: &Member) {
        lock(&self.addresses).insert(member.id, member.address);
    }

    /// Nothing comes of it any more.
    pub(super) fn scheduler_lost(&self, error: &Error) {
        self.loading.store(false, Ordering::SeqCst);
        *lock(&self.lost) = Some(error.clone());
        self.notify();
    }

    /// Wakes all that wait.
    pub(super) fn notify(&self) {
        drop(lock(&self.map));
        self.changed.notify_all();
    }

    pub(super) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        lock(&self.addresses).get(&node).copied()
    }
}

impl Node {
    /// Makes this server an elastic one, and tells the scheduler.
    pub(crate) fn serve_elastic(
        self: &Arc<Self>,
        elastic: &Elastic,
        engine: Engine,
        apps: Vec<App>,
    ) -> Result<(), Error> {
        // Better now than when there are values to lose.
        if let Some(snapshots) = &self.options.snapshots {
            SnapshotStore::open(&snapshots.place)?.check()?;
        }
        let server = Server {
            engine,
            connections: BTreeMap::new(),
            held_since: None,
        };
        if elastic.server.set(Mutex::new(server)).is_err() {
            let app = apps.first().map_or(0, |app| app.app);
            return Err(Error::CustomerExists { app, customer: app });
        }
        // Those that were opened before. Later ones are told.
        self.with_engine(|_, connections, _| {
            let open = lock(&self.connections).clone();
            let open = open.into_iter().filter(|(node, _)| *node != SCHEDULER);
            open.for_each(|(node, connection)| _ = connections.entry(node).or_insert(connection));
        });
        // A node that comes later has got the map already.
        let map = lock(&elastic.map).clone();
        if let Some(map) = map {
            self.with_engine(|engine, _, out| engine.map(&map, out));
        }
        let scheduler = self.connection(SCHEDULER)?;
        self.send_control(&scheduler, &Control::Ready { apps })?;
        let waited = self.options.start_timeout;
        let answer = self.wait_for_scheduler(elastic, &elastic.accepted, waited)?;
        match answer {
            Some(Ok(())) => Ok(()),
            Some(Err(reason)) => Err(Error::JoinRefused(reason)),
            None => Err(Error::StartTimedOut { waited }),
        }
    }

    /// Waits for an answer of the scheduler. `None` if the time is over.
    pub(super) fn wait_for_scheduler<T>(
        &self,
        elastic: &Elastic,
        answer: &Mutex<Option<Result<T, String>>>,
        limit: Duration,
    ) -> Result<Option<Result<T, String>>, Error> {
        let start = Instant::now();
        let mut guard = lock(&elastic.map);
        loop {
            if let Some(answer) = lock(answer).take() {
                return Ok(Some(answer));
            }
            if let Some(error) = self.scheduler_lost() {
                return Err(error);
            }
            let rest = limit.checked_sub(start.elapsed());
            let Some(rest) = rest.or_else(|| elastic.while_loading()) else {
                return Ok(None);
            };
            let woken = elastic.changed.wait_timeout(guard, rest);
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Calls the engine, and does what it wants. `None` if this is no elastic server.
    pub(super) fn with_engine(
        self: &Arc<Self>,
        call: impl FnOnce(&mut Engine, &mut BTreeMap<NodeId, Arc<Connection>>, &mut Vec<Command>),
    ) {
        let Some(server) = self.elastic.as_ref().and_then(|it| it.server.get()) else {
            return;
        };
        let mut server = lock(server);
        let server = &mut *server;
        let mut out = Vec::new();
        call(&mut server.engine, &mut server.connections, &mut out);
        for command in out {
            self.execute(server, command);
        }
        server.held_since = match server.engine.holds_requests() {
            true => server.held_since.or_else(|| Some(Instant::now())),
            false => None,
        };
    }

    fn execute(self: &Arc<Self>, server: &mut Server, command: Command) {
        match command {
            Command::Answer {
                origin,
                version,
                keys,
                found,
            } => {
                let found = found.unwrap_or_default();
                let header = Header {
                    dtype: origin.dtype,
                    lens: found.lens.as_ref().map_or(0, |_| keys as u32),
                    per_key: found.per_key,
                    value_bytes: found.values.len() as u64,
                    ..wire::answer_header(&origin, self.id(), version)
                };
                let lens = found
                    .lens
                    .map_or_else(Bytes::new, |lens| crate::array::Array::from(lens).bytes());
                let parts = [Bytes::new(), lens, found.values];
                self.send_over(server, origin.identity.worker, &header, parts);
            }
            Command::Refuse {
                origin,
                version,
                refusal,
            } => {
                let body = serde_json::to_vec(&refusal).expect("a refusal is plain data");
                let header = wire::answer_header(&origin, self.id(), version);
                let header = Header {
                    flags: header.flags | FAILURE,
                    value_bytes: body.len() as u64,
                    ..header
                };
                let parts = [Bytes::new(), Bytes::new(), body.into()];
                self.send_over(server, origin.identity.worker, &header, parts);
            }
            Command::Send { to, message } => {
                let (header, parts) = wire::encode(&message, self.id());
                self.send_over(server, to, &header, parts);
            }
            Command::Save {
                number,
                ticket,
                ranges,
            } => self.save_ranges(number, ticket, ranges),
            Command::Load {
                number,
                ticket,
                ranges,
            } => self.load_ranges(number, ticket, ranges),
            Command::Report(report) => self.tell_scheduler(&Control::Report { report }),
            Command::Diverged(reason) => {
                tracing::error!(reason, "this server has failed: it serves no more");
                self.log(0, || format!("this server has failed: {reason}"));
                server.engine.fence();
                let report = Report::Failed { reason };
                self.tell_scheduler(&Control::Report { report });
            }
        }
    }

    fn send_over(
        self: &Arc<Self>,
        server: &Server,
        to: NodeId,
        header: &Header,
        parts: [Bytes; 3],
    ) {
        self.log(2, || format!("to {to}: {header:?}"));
        let known = server.connections.get(&to).cloned();
        // Answers need no order, and a worker that has an open connection does not send its requests again.
        let to_worker = to.role() == Some(Role::Worker);
        let known = known.or_else(|| self.open_connection(to).filter(|_| to_worker));
        match known {
            // If it breaks, the next connection begins with what was not acknowledged.
            Some(connection) => {
                _ = connection.send(Outgoing::new(header, parts), Pace::Corked);
            }
            None => self.dial_later(to),
        }
    }

    /// Why the scheduler says nothing any more.
    pub(crate) fn scheduler_lost(&self) -> Option<Error> {
        lock(&self.waiting).scheduler_lost.clone()
    }

    pub(crate) fn tell_scheduler(self: &Arc<Self>, message: &Control) {
        let scheduler = lock(&self.connections).get(&SCHEDULER).cloned();
        if let Some(scheduler) = scheduler {
            let _ = self.send_control(&scheduler, message);
        }
    }

    /// A request to an app of the elastic server.
    pub(crate) fn elastic_request(self: &Arc<Self>, header: &Header, payload: Payload<'_>) {
        let body = Body {
            keys: payload.keys,
            lens: payload.lens,
            per_key: header.per_key,
            values: payload.values,
        };
        let origin = wire::origin_of(header);
        if body.keys.is_empty() || !self.has_lease() {
            return;
        }
        self.with_engine(|engine, _, out| engine.request(header.map_version, origin, body, out));
    }

    /// A frame of another server.
    pub(super) fn receive_chain(
        self: &Arc<Self>,
        from: NodeId,
        header: &Header,
        payload: Payload<'_>,
    ) {
        let incoming = wire::decode(header, payload.keys, payload.lens, payload.values);
        let Some(incoming) = incoming.filter(|_| from.role() == Some(Role::Server)) else {
            tracing::warn!(%from, "ignored a frame that is no message of an elastic server");
            return;
        };
        if !self.has_lease() {
            return;
        }
        self.with_engine(|engine, _, out| match incoming {
            Incoming::Entry { head, origin, body } => {
                engine.entry(from, head, &origin, body, None, out);
            }
            Incoming::Acknowledged { first, mode, index } => {
                engine.acknowledged(from, first, mode, index, out);
            }
            Incoming::Piece { head, chunk } => engine.piece(from, head, chunk, out),
            Incoming::PieceTaken { first, stream } => {
                engine.message(from, Message::PieceTaken { first, stream }, out);
            }
        });
    }

    /// Requests that wait for a map, and loads: once in an interval.
    pub(super) fn elastic_beat(self: &Arc<Self>) {
        let Some(elastic) = &self.elastic else { return };
        let Some(server) = elastic.server.get() else {
            return;
        };
        let waited = self.options.handler_timeout;
        let late = lock(server)
            .held_since
            .is_some_and(|since| since.elapsed() >= waited);
        let mut loads = Vec::new();
        self.with_engine(|engine, _, out| {
            loads = engine.loads();
            if late {
                let version = engine.current_map().map_or(0, |map| map.version) + 1;
                engine.refuse_held(&Refusal::NoMap { version, waited }, out);
            }
        });
        self.tell_scheduler(&Control::Load { loads });
    }

    /// Handles a message of an elastic job. Gives back what is none.
    pub(super) fn elastic_message(self: &Arc<Self>, message: Control) -> Option<Control> {
        let elastic = match &self.elastic {
            Some(elastic) => elastic,
            None => return Some(message),
        };
        match message {
            Control::Members { members } => {
                let members = members.into_iter();
                lock(&elastic.addresses).extend(members.map(|it: Member| (it.id, it.address)));
            }
            Control::Map { map } => self.elastic_map(elastic, map),
            Control::Order { order } => self.elastic_order(&order),
            Control::Accepted => {
                *lock(&elastic.accepted) = Some(Ok(()));
                elastic.notify();
            }
            Control::Drained => {
                *lock(&elastic.drain) = Some(Ok(()));
                elastic.notify();
            }
            Control::DrainRefused { reason } => {
                *lock(&elastic.drain) = Some(Err(reason));
                elastic.notify();
            }
            Control::Loading { loads } => {
                elastic.loading.store(loads, Ordering::SeqCst);
                elastic.notify();
            }
            Control::SaveEnded { number, error } => {
                let answer = error.map_or(Ok(number), Err);
                *lock(&elastic.snapshot.answer) = Some(answer);
                elastic.notify();
            }
            other => return Some(other),
        }
        None
    }

    fn elastic_order(self: &Arc<Self>, order: &Order) {
        self.log(1, || format!("{order:?}"));
        self.with_engine(|engine, _, out| engine.order(order, out));
    }

    fn elastic_map(self: &Arc<Self>, elastic: &Elastic, map: ChainMap) {
        if !map.is_complete() {
            tracing::warn!("ignored a range map with gaps");
            return;
        }
        self.log(1, || format!("range map {}", map.version));
        elastic.loading.store(false, Ordering::SeqCst);
        let map = Arc::new(map);
        {
            let mut current = lock(&elastic.map);
            if (current.as_ref()).is_some_and(|current| current.version >= map.version) {
                return;
            }
            *current = Some(Arc::clone(&map));
        }
        elastic.changed.notify_all();
        self.with_engine(|engine, _, out| engine.map(&map, out));
        for customer in self.registry.customers() {
            customer.map_changed(&map);
        }
    }

    /// A node is dead.
    pub(super) fn elastic_death(self: &Arc<Self>, node: NodeId) {
        self.with_engine(|engine, connections, out| {
            connections.remove(&node);
            match node {
                SCHEDULER => engine.fence(),
                node => engine.died(node, out),
            }
        });
    }

    /// Hands over all that this server has.
    pub(crate) fn drain(self: &Arc<Self>, elastic: &Elastic, limit: Duration) -> Result<(), Error> {
        *lock(&elastic.drain) = None;
        let scheduler = self.connection(SCHEDULER)?;
        self.send_control(&scheduler, &Control::Drain)?;
        let waited = limit;
        match self.wait_for_scheduler(elastic, &elastic.drain, limit)? {
            Some(Ok(())) => Ok(()),
            Some(Err(reason)) => Err(Error::DrainRefused(reason)),
            None => Err(Error::DrainTimedOut { waited }),
        }
    }
}

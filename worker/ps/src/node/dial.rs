//! Connections: dialled, accepted, and their receiving threads.

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{Death, Node, OF_NODE, lock};
use crate::{
    core::{
        frame::FrameError,
        node::{NodeId, Role, SCHEDULER},
    },
    error::{Error, end_of_connection},
    net::{Connection, End, ReceiveError, SharedMemory, Stream, connect_once},
    options::Options,
};

/// Time between two attempts to dial.
const RETRY: Duration = Duration::from_millis(20);

/// Connects to a node, again and again until it accepts.
pub(super) fn connect(
    to: NodeId,
    address: SocketAddr,
    options: &Options,
    limit: Duration,
) -> Result<Stream, Error> {
    let start = Instant::now();
    loop {
        let rest = limit
            .saturating_sub(start.elapsed())
            .max(Duration::from_millis(1));
        let reason = match connect_once(address, options.sockets(to), rest) {
            Ok(stream) => return Ok(stream),
            Err(error) => error.to_string(),
        };
        if start.elapsed() + RETRY >= limit {
            let waited = limit;
            return Err(Error::Unreachable {
                node: to,
                address,
                waited,
                reason,
            });
        }
        thread::sleep(RETRY);
    }
}

impl Node {
    /// Dials a node until it accepts.
    pub(super) fn dial(
        self: &Arc<Self>,
        to: NodeId,
        address: SocketAddr,
        limit: Duration,
    ) -> Result<Arc<Connection>, Error> {
        self.open(connect(to, address, &self.options, limit)?, to, limit)
    }

    /// Opens a connection that this node has dialled, within a limit.
    pub(super) fn open(
        self: &Arc<Self>,
        stream: Stream,
        to: NodeId,
        limit: Duration,
    ) -> Result<Arc<Connection>, Error> {
        let memory = self.introduce(&stream, to, limit)?;
        self.log(1, || {
            let how = memory
                .as_ref()
                .map_or("", |_| ", and offered shared memory");
            format!("connected to {to}{how}")
        });
        self.adopt(stream, Some((to, memory)))
    }

    /// Takes a stream into service: a connection with its receiving thread. `dialled` says to whom, and which memory both share;
    /// whoever is accepted says it first.
    fn adopt(
        self: &Arc<Self>,
        stream: Stream,
        dialled: Option<(NodeId, Option<Arc<SharedMemory>>)>,
    ) -> Result<Arc<Connection>, Error> {
        let accepted = dialled.is_none();
        let (peer, memory) = dialled.unzip();
        let sender = Arc::clone(&self.sender);
        // Only threads of a worker read by themselves: `may_lead`.
        let in_turns = self.options.role == Role::Worker;
        let known = peer.map(|peer| (peer, self.processes.incarnation(peer)));
        let connection = Connection::new(stream, known, sender, self.options.send_buffer, in_turns)
            .map_err(Error::io("epoll"))?;
        if let Some(memory) = memory.flatten() {
            let (writer, reader) = memory.halves(End::Dialled);
            connection.share(writer);
            connection.turns().keep().receiver.share(reader);
        }
        if let Some(peer) = peer {
            lock(&self.connections).insert(peer, Arc::clone(&connection));
        }
        lock(&self.open).push(Arc::clone(&connection));
        // A dialled connection has its peer from the start, and an accepted one says it first.
        self.link_up(&connection);
        // The end of the node has closed all that were open before.
        if self.is_stopped() {
            connection.close(Error::Finalized);
        }
        let node = Arc::clone(self);
        let thread_connection = Arc::clone(&connection);
        let builder = thread::Builder::new().name("ps-receive".to_owned());
        let spawned = builder.spawn(move || {
            OF_NODE.set(true);
            let connection = thread_connection;
            let opened = match accepted {
                true => node.read_opening(&connection),
                false => Ok(()),
            };
            let ended = opened.and_then(|()| match node.options.role {
                Role::Worker => node.receive_in_turns(&connection),
                Role::Scheduler | Role::Server => node.receive(&connection),
            });
            node.ended(&connection, ended.err());
        });
        if spawned.is_err() {
            lock(&self.open).retain(|open| !Arc::ptr_eq(open, &connection));
        }
        let handle = spawned.map_err(Error::io("clone"))?;
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(handle);
        Ok(connection)
    }

    /// Learns who has dialled.
    fn read_opening(self: &Arc<Self>, connection: &Arc<Connection>) -> Result<(), ReceiveError> {
        let (peer, incarnation) = self.welcome(connection).inspect_err(|error| {
            if !matches!(error, ReceiveError::Io(_)) {
                tracing::warn!("a connection to this node was refused: {error}");
            }
        })?;
        if peer == NodeId(0) {
            if self.scheduler.is_none() {
                return Err(FrameError::NoOpening.into());
            }
            lock(&self.strangers).push(Arc::clone(connection));
            return Ok(());
        }
        if incarnation < self.processes.incarnation(peer) {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        }
        // It may be here before the scheduler has said so.
        self.came_back((peer, incarnation), None);
        connection.set_peer(peer, incarnation);
        self.log(1, || format!("accepted {peer}"));
        // If both have dialled, each keeps the one that it has.
        lock(&self.connections)
            .entry(peer)
            .or_insert_with(|| Arc::clone(connection));
        self.link_up(connection);
        Ok(())
    }

    /// Accepts connections until the node stops.
    pub(super) fn accept(self: &Arc<Self>) {
        loop {
            let accepted = self.listener.accept();
            if self.is_stopped() {
                return;
            }
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    thread::sleep(RETRY);
                    continue;
                }
            };
            if let Err(error) = self.adopt(stream, None) {
                tracing::warn!(%error, "a connection was not taken into service");
            }
        }
    }

    /// A receiving thread has come to the end of its connection.
    fn ended(self: &Arc<Self>, connection: &Arc<Connection>, error: Option<ReceiveError>) {
        lock(&self.open).retain(|open| !Arc::ptr_eq(open, connection));
        lock(&self.strangers).retain(|stranger| !Arc::ptr_eq(stranger, connection));
        let Some(process) = connection.process() else {
            connection.stream().shutdown();
            self.candidate_left(connection);
            return;
        };
        let (peer, incarnation) = process;
        if incarnation < self.processes.incarnation(peer) {
            // Another process has its id.
            connection.stream().shutdown();
            return;
        }
        let reason = match error {
            Some(ReceiveError::Frame(error)) => error.to_string(),
            Some(ReceiveError::Stranger(stranger)) => stranger.to_string(),
            Some(ReceiveError::Io(error)) => end_of_connection(&error),
            None => "it closed the connection".to_owned(),
        };
        connection.close(Error::NodeLost {
            node: peer,
            reason: reason.clone(),
        });
        self.link_down(peer, connection);
        let is_other = |current: &Arc<Connection>| !Arc::ptr_eq(current, connection);
        if lock(&self.connections).get(&peer).is_some_and(is_other) {
            // The other one of two that were dialled at once is in use.
            return;
        }
        let is_stopped = self.is_stopped();
        let why_left = self.why_left(peer);
        // Whether it is dead, the scheduler says.
        let may_live = self.elastic.is_some() && self.scheduler.is_none() && peer != SCHEDULER;
        if !is_stopped && why_left.is_none() && !may_live {
            // First: a node without a connection is dialled, unless it is lost.
            self.lose(process, &reason);
        }
        {
            let mut connections = lock(&self.connections);
            if !connections.get(&peer).is_some_and(is_other) {
                connections.remove(&peer);
            }
        }
        if is_stopped {
            self.fail_waiting(process, &Error::Finalized);
            return;
        }
        if let Some(why) = why_left {
            // It is not dead, but it will answer nothing any more.
            self.fail_waiting(process, &why);
            return;
        }
        if may_live {
            self.log(1, || format!("lost the connection to {peer}: {reason}"));
            self.dial_later(peer);
            return;
        }
        if peer == SCHEDULER {
            self.elastic_death(peer);
        }
        if self.scheduler.is_some() {
            self.disconnected(process, &reason);
        }
    }

    /// Whether the process that has the id of a node has said goodbye.
    pub(crate) fn has_left(&self, peer: NodeId) -> bool {
        self.why_left(peer).is_some()
    }

    /// Why requests to a node fail that has said goodbye, if it has.
    pub(super) fn why_left(&self, peer: NodeId) -> Option<Error> {
        let incarnation = self.processes.incarnation(peer);
        let waiting = lock(&self.waiting);
        let goodbye = waiting.left.get(&peer)?;
        if goodbye.incarnation != incarnation {
            return None;
        }
        let reason = match &goodbye.loss {
            Some(Death { node, reason, .. }) => {
                format!("it has ended after the loss of {node} ({reason})")
            }
            None => "it has ended".to_owned(),
        };
        Some(Error::NodeLost { node: peer, reason })
    }

    /// Dials all servers.
    pub(super) fn dial_servers(self: &Arc<Self>) -> Result<(), Error> {
        let (servers, _) = self.counts();
        for rank in 0..servers {
            match self.connection(NodeId::server(rank)) {
                // It may be replaced too.
                Err(error) if !self.options.replace_timeout.is_zero() => {
                    self.log(1, || error.to_string());
                }
                dialled => _ = dialled?,
            }
        }
        Ok(())
    }
}

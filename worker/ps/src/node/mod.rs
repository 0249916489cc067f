//! A node: its connections and threads, and what all its customers share.

mod background;
mod clock;
mod control;
mod dial;
pub(crate) mod dispatch;
mod elastic;
mod lead;
mod opening;
mod processes;
mod registration;
mod registry;
mod resends;
mod saved_ranges;
mod scheduler;
mod snapshots;
mod start;
mod waiting;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use background::Background;
use bytes::Bytes;
use control::{Control, Death};
pub(crate) use elastic::Elastic;
pub(crate) use processes::Process;
use processes::Processes;
pub(crate) use registry::{AnswerSink, Registry, RequestSink};
use resends::Resends;
use scheduler::Scheduler;
use waiting::Waiting;

use crate::{
    core::{
        frame::{Header, Kind},
        membership::Member,
        node::{NodeId, SCHEDULER},
        ranges::RangeMap,
    },
    error::Error,
    net::{Connection, Listener, Outgoing, Pace, SendThread},
    options::Options,
};

/// What a node is told when all are there.
#[derive(Debug)]
struct Roster {
    id: NodeId,
    servers: u32,
    workers: u32,
    /// Whether the others had met already when this node came.
    late: bool,
    addresses: BTreeMap<NodeId, SocketAddr>,
}

/// The shared part of a node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) options: Options,
    pub(crate) registry: Registry,
    map: RangeMap,
    started: Instant,
    listener: Listener,
    sender: Arc<SendThread>,
    roster: OnceLock<Roster>,
    connections: Mutex<BTreeMap<NodeId, Arc<Connection>>>,
    /// Held while a node is dialled, so that two threads do not dial one node at once.
    dialling: Mutex<()>,
    /// All connections that have a receiving thread. With two of one pair of nodes, one is not in `connections`.
    open: Mutex<Vec<Arc<Connection>>>,
    /// Connections of nodes that have not registered.
    strangers: Mutex<Vec<Arc<Connection>>>,
    processes: Processes,
    /// Whether the program has ended this node in the last barrier, with all others.
    pub(crate) finished: AtomicBool,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    resends: Option<Resends>,
    /// Only in an elastic job.
    pub(crate) elastic: Option<Elastic>,
    scheduler: Option<Mutex<Scheduler>>,
    /// When the scheduler was heard last, in milliseconds since the start.
    scheduler_heard: AtomicU64,
    stopped: AtomicBool,
    /// Requests of all customers that are not completed.
    pub(crate) in_flight: AtomicUsize,
    /// Wakes the clock before its time.
    alarm: (Mutex<()>, Condvar),
    threads: Mutex<Vec<JoinHandle<()>>>,
    background: Background,
}

std::thread_local! {
    /// Whether the current thread is one of a node. Such a thread must not wait for space to send.
    static OF_NODE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    /// The id. 0 before the start is complete.
    pub(crate) fn id(&self) -> NodeId {
        self.roster.get().map_or(NodeId(0), |roster| roster.id)
    }

    pub(crate) fn map(&self) -> &RangeMap {
        &self.map
    }

    /// Number of servers and workers.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let roster = self.roster.get();
        roster.map_or((self.options.servers, self.options.workers), |roster| {
            (roster.servers, roster.workers)
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn log(&self, level: u32, text: impl FnOnce() -> String) {
        if self.options.verbose >= level {
            let id = match self.roster.get() {
                Some(roster) => roster.id.to_string(),
                None => self.options.role.to_string(),
            };
            eprintln!("[ps {id}] {}", text());
        }
    }

    /// Whether the thread may wait for space.
    pub(crate) fn pace(&self) -> Pace {
        match OF_NODE.get() {
            true => Pace::Now,
            false => Pace::Wait(self.options.request_timeout),
        }
    }

    /// Sends a frame of data or a simple message to another node.
    pub(crate) fn send(
        self: &Arc<Self>,
        to: NodeId,
        header: Header,
        parts: [Bytes; 3],
        pace: Pace,
    ) -> Result<(), Error> {
        self.processes.tell(to)?;
        let connection = self.connection(to)?;
        self.log(2, || format!("to {to}: {header:?}"));
        self.send_kept(&connection, header, parts, pace)
    }

    /// Sends a message over a connection, and keeps it until it is acknowledged if messages are.
    fn send_kept(
        &self,
        connection: &Arc<Connection>,
        header: Header,
        parts: [Bytes; 3],
        pace: Pace,
    ) -> Result<(), Error> {
        let (Some(resends), Some(process)) = (&self.resends, connection.process()) else {
            return connection.send(Outgoing::new(&header, parts), pace);
        };
        let mut header = header;
        let frame = resends.keep(process, &mut header, parts, self.now());
        connection.send(frame, pace).inspect_err(|error| {
            // It may have been lost since the connection was found.
            if matches!(error, Error::NodeLost { .. }) {
                resends.forget(process);
            }
        })
    }

    /// Waits until all connections have space, for so long. Returns whether they have: a broken one has, as it refuses at once. A
    /// thread of the node does not wait.
    pub(crate) fn wait_for_space(&self, limit: Duration) -> bool {
        if self.pace() == Pace::Now {
            return true;
        }
        let start = Instant::now();
        let connections: Vec<_> = lock(&self.connections).values().cloned().collect();
        connections.iter().all(|connection| {
            let rest = limit.saturating_sub(start.elapsed());
            let waited = connection.wait_for_space(rest);
            !matches!(waited, Err(Error::BackPressure { .. }))
        })
    }

    fn send_control(&self, connection: &Arc<Connection>, message: &Control) -> Result<(), Error> {
        let body = serde_json::to_vec(message).expect("a control message is plain data");
        let header = Header {
            value_bytes: body.len() as u64,
            priority: i32::MAX,
            ..Header::new(Kind::Control, 0, self.id())
        };
        let frame = Outgoing::new(&header, [Bytes::new(), Bytes::new(), body.into()]);
        connection.send(frame, Pace::Now)
    }

    /// The connection to a node, which is dialled if there is none.
    fn connection(self: &Arc<Self>, to: NodeId) -> Result<Arc<Connection>, Error> {
        if let Some(connection) = lock(&self.connections).get(&to) {
            return Ok(Arc::clone(connection));
        }
        let _dialling = lock(&self.dialling);
        if let Some(connection) = lock(&self.connections).get(&to) {
            return Ok(Arc::clone(connection));
        }
        if self.is_stopped() {
            return Err(Error::Finalized);
        }
        // It does not listen any more.
        let why_left = match self.elastic {
            Some(_) => None,
            None => self.why_left(to),
        };
        if let Some(why) = why_left {
            return Err(why);
        }
        let address = self.address_of(to)?;
        self.dial(to, address, self.options.heartbeat_timeout)
    }

    /// Where a node is.
    ///
    /// # Errors
    /// It is lost, or there is no such node.
    fn address_of(&self, node: NodeId) -> Result<SocketAddr, Error> {
        let later = self.processes.address(node)?;
        let roster = self.roster.get();
        let known = later.or_else(|| roster?.addresses.get(&node).copied());
        known
            .or_else(|| self.elastic.as_ref()?.address(node))
            .ok_or(Error::NoSuchNode(node))
    }

    /// The connection to a node, if there is one.
    pub(crate) fn open_connection(&self, to: NodeId) -> Option<Arc<Connection>> {
        lock(&self.connections).get(&to).cloned()
    }

    /// Whether the others had met already when this node came.
    pub(crate) fn is_late(&self) -> bool {
        self.roster.get().is_some_and(|roster| roster.late)
    }
}

fn addresses(members: &[Member], scheduler: SocketAddr) -> BTreeMap<NodeId, SocketAddr> {
    let members = members.iter().map(|member| (member.id, member.address));
    members.chain([(SCHEDULER, scheduler)]).collect()
}

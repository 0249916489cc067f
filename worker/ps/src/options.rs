//! What a node is told at its start.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::{
    core::{
        node::{NodeId, Role, SCHEDULER},
        opening::Key,
    },
    error::Error,
    net::{MAX_SHARED, Sockets},
    snapshot::SnapshotStore,
};

/// Snapshots of an elastic job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshots {
    /// A directory, or `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`, which all servers and the scheduler reach.
    pub place: String,
    /// The time between two of them. `None`: only at the end of a job, and where a worker asks for one.
    pub interval: Option<Duration>,
}

impl Snapshots {
    /// Checks that the place can be written, and that the newest snapshot in it can be read.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self) -> Result<(), Error> {
        let store = SnapshotStore::open(&self.place)?;
        store.check()?;
        store.newest().map(drop)
    }
}

/// The options of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the node does.
    pub role: Role,
    /// Number of servers of the job.
    pub servers: u32,
    /// Number of workers of the job.
    pub workers: u32,
    /// The rank of this node among those of its role, unless another one has it. By default, the order of arrival.
    pub rank: Option<u32>,
    /// Where the scheduler listens.
    pub scheduler: SocketAddr,
    /// The address at which other nodes reach this one. By default, the one from which it reaches the scheduler.
    pub host: Option<IpAddr>,
    /// Use Unix sockets: all nodes are on this machine.
    pub local: bool,
    /// Bytes of memory that two nodes of one host share for keys and values, for each direction. 0: they share none, and
    /// send all through their sockets.
    pub shared_memory: usize,
    /// How long the start may take.
    pub start_timeout: Duration,
    /// How long an answer or a barrier may take.
    pub request_timeout: Duration,
    /// How long a server keeps a request for an app without a handler.
    pub handler_timeout: Duration,
    /// Time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// Silence after which a node is dead.
    pub heartbeat_timeout: Duration,
    /// How long barriers wait for a process in the place of a dead one. 0: they end with an error at once.
    pub replace_timeout: Duration,
    /// Acknowledge messages, and repeat those that are not acknowledged for so long.
    pub resend: Option<Duration>,
    /// Percentage of received messages that are dropped, for tests.
    pub drop_percent: u32,
    /// Bytes that may wait on a connection before a sender waits.
    pub send_buffer: usize,
    /// Servers of this job may join, leave and fail while it runs.
    pub elastic: bool,
    /// So many servers of an elastic job may die at once without a loss of values.
    pub replicas: u32,
    /// Where the values of an elastic job are saved. The next job of the same place begins with them.
    pub snapshots: Option<Snapshots>,
    /// Only nodes with this key take part. Without one, all that reach the ports of the job do.
    pub key: Option<Key>,
    /// 1 prints connections to standard error, 2 all messages.
    pub verbose: u32,
}

impl Options {
    /// The defaults for a node of a job.
    pub fn new(role: Role, scheduler: SocketAddr, servers: u32, workers: u32) -> Self {
        Self {
            role,
            servers,
            workers,
            rank: None,
            scheduler,
            host: None,
            local: false,
            shared_memory: 32 << 20,
            start_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(60),
            handler_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(1),
            heartbeat_timeout: Duration::from_secs(5),
            replace_timeout: Duration::ZERO,
            resend: None,
            drop_percent: 0,
            send_buffer: 64 << 20,
            elastic: false,
            replicas: 0,
            snapshots: None,
            key: None,
            verbose: 0,
        }
    }

    /// By which sockets this node reaches another one.
    pub(crate) fn sockets(&self, to: NodeId) -> Sockets {
        match (self.local, self.shared_memory > 0 && to != SCHEDULER) {
            (true, _) => Sockets::Unix,
            (false, true) => Sockets::Both,
            (false, false) => Sockets::Tcp,
        }
    }

    /// Refuses options that contradict each other.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |text: &str| Err(Error::Options(text.to_owned()));
        if self.servers == 0 {
            return bad("a job needs a server: set DMLC_NUM_SERVER to 1 or more");
        }
        if self.workers == 0 {
            return bad("a job needs a worker: set DMLC_NUM_WORKER to 1 or more");
        }
        if self.drop_percent >= 100 {
            return bad("PS_DROP_MSG must be a percentage from 0 to 99");
        }
        if self.drop_percent > 0 && self.resend.is_none() {
            return bad("PS_DROP_MSG needs PS_RESEND=1: without it dropped messages never arrive");
        }
        if self.resend.is_some_and(|timeout| timeout.is_zero()) {
            return bad("PS_RESEND_TIMEOUT must be 1 or more milliseconds");
        }
        if self.replicas > 0 && !self.elastic {
            return bad("PS_REPLICAS needs PS_ELASTIC=1");
        }
        if self.snapshots.is_some() && !self.elastic {
            return bad("ELASTICRUN_PS_SNAPSHOTS needs PS_ELASTIC=1");
        }
        if self.elastic && self.resend.is_some() {
            return bad(
                "PS_RESEND has no use with PS_ELASTIC=1, which sends again what is lost: leave it out",
            );
        }
        if self.elastic && !self.replace_timeout.is_zero() {
            return bad(
                "ELASTICRUN_PS_REPLACE_TIMEOUT has no use with PS_ELASTIC=1, where nodes come and go: leave it out",
            );
        }
        if self.shared_memory > MAX_SHARED {
            return bad("ELASTICRUN_PS_SHARED_MEMORY must be at most 1099511627776 bytes");
        }
        if self.heartbeat_timeout <= self.heartbeat_interval {
            return bad("PS_HEARTBEAT_TIMEOUT must be longer than PS_HEARTBEAT_INTERVAL");
        }
        Ok(())
    }
}

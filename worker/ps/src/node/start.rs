//! The start and the end of a node.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Background, Control, Elastic, Node, Processes, Registry, Resends, Scheduler, Waiting,
    dial::connect, lock,
};
use crate::{
    core::{
        membership::Newcomer,
        node::{NodeId, Role, SCHEDULER},
        ranges::RangeMap,
    },
    error::Error,
    net::{Listener, SendThread, Stream},
    options::Options,
};

/// How long the end of a node waits for messages that are not acknowledged, and for its last bytes.
const LAST_BYTES: Duration = Duration::from_secs(5);

impl Node {
    /// Starts a node, and waits until all nodes of the job are there.
    pub(crate) fn start(options: Options) -> Result<Arc<Self>, Error> {
        options.check()?;
        let started = Instant::now();
        let is_scheduler = options.role == Role::Scheduler;
        let (listener, stream) = match is_scheduler {
            true => (listen_as_scheduler(&options)?, None),
            false => {
                let limit = options.start_timeout;
                let stream = connect(SCHEDULER, options.scheduler, &options, limit)?;
                let own = match &stream {
                    Stream::Tcp(stream) => {
                        let address = stream.local_addr().map_err(Error::io("getsockname"))?;
                        options.host.unwrap_or(address.ip())
                    }
                    Stream::Unix(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
                };
                let own = SocketAddr::new(own, 0);
                let sockets = options.sockets(NodeId(0));
                let listener = Listener::bind(own, sockets).map_err(Error::io("bind"))?;
                (listener, Some(stream))
            }
        };
        let scheduler = is_scheduler.then(|| Scheduler::new(&options)).transpose()?;
        let address = listener.local_addr().map_err(Error::io("getsockname"))?;
        let (sender, send_thread) = SendThread::start()?;
        let servers = options.servers;
        let node = Arc::new(Self {
            registry: Registry::default(),
            map: RangeMap::equal(servers),
            started,
            listener,
            sender,
            roster: OnceLock::new(),
            connections: Mutex::default(),
            dialling: Mutex::new(()),
            open: Mutex::default(),
            strangers: Mutex::default(),
            processes: Processes::default(),
            finished: AtomicBool::new(false),
            waiting: Mutex::new(Waiting::default()),
            changed: Condvar::new(),
            resends: options.resend.map(Resends::new),
            elastic: options.elastic.then(Elastic::default),
            scheduler: scheduler.map(Mutex::new),
            scheduler_heard: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            alarm: (Mutex::new(()), Condvar::new()),
            threads: Mutex::new(vec![send_thread]),
            background: Background::default(),
            options,
        });
        match node.run(address, stream) {
            Ok(()) => Ok(node),
            Err(error) => {
                node.stop_with(None);
                Err(error)
            }
        }
    }

    fn run(self: &Arc<Self>, address: SocketAddr, stream: Option<Stream>) -> Result<(), Error> {
        self.spawn("ps-accept", Self::accept)?;
        let opened = stream.map(|stream| self.open(stream, SCHEDULER, self.options.start_timeout));
        let opened = opened.transpose()?;
        let now = self.now().as_millis() as u64;
        self.scheduler_heard.store(now, Ordering::Relaxed);
        self.extend_lease(self.now());
        if let Some(connection) = opened {
            let newcomer = Newcomer {
                role: self.options.role,
                address,
                rank: self.options.rank,
                workers: self.options.workers,
            };
            self.send_control(&connection, &Control::Register(newcomer))?;
        }
        self.spawn("ps-clock", Self::run_clock)?;
        self.wait_for_roster()?;
        if self.options.role == Role::Worker {
            self.dial_servers()?;
        }
        Ok(())
    }

    fn spawn(self: &Arc<Self>, name: &str, run: fn(&Arc<Self>)) -> Result<(), Error> {
        let node = Arc::clone(self);
        let builder = thread::Builder::new().name(name.to_owned());
        let handle = builder
            .spawn(move || run(&node))
            .map_err(Error::io("clone"))?;
        lock(&self.threads).push(handle);
        Ok(())
    }

    /// Waits until all that this node has sent was acknowledged, if messages are.
    pub(crate) fn settle(&self) {
        if let Some(resends) = &self.resends {
            resends.settle(LAST_BYTES);
        }
    }

    /// Ends the node: says goodbye, sends its last bytes, and ends all its threads.
    pub(crate) fn stop(self: &Arc<Self>) {
        self.stop_with(Some(self.goodbye()));
    }

    /// Ends the node. Without a goodbye, as if it died: a node that could not start may be replaced.
    fn stop_with(self: &Arc<Self>, goodbye: Option<Control>) {
        if self.stopped.swap(true, Ordering::SeqCst) {
            return;
        }
        let scheduler = self.scheduler.as_ref().map(lock);
        let unsaved =
            scheduler.and_then(|scheduler| scheduler.snapshots.as_ref()?.schedule.unsaved());
        if let Some(unsaved) = unsaved {
            self.log(0, || unsaved);
        }
        let connections: Vec<_> = lock(&self.connections).values().cloned().collect();
        if let Some(goodbye) = goodbye {
            for connection in &connections {
                let _ = self.send_control(connection, &goodbye);
            }
        }
        for connection in &connections {
            connection.flush(LAST_BYTES);
        }
        lock(&self.strangers).clear();
        let open = lock(&self.open).clone();
        for connection in open {
            connection.close(Error::Finalized);
        }
        self.sender.stop();
        self.background.stop();
        self.alarm();
        // It wakes the accepting thread.
        self.listener.shutdown();
        let current = thread::current().id();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            if thread.thread().id() != current {
                // A panic of a callback has been printed.
                let _ = thread.join();
            }
        }
    }
}

fn listen_as_scheduler(options: &Options) -> Result<Listener, Error> {
    let address = options.scheduler;
    Listener::bind(address, options.sockets(SCHEDULER)).map_err(|error| Error::PortTaken {
        address,
        reason: error.to_string(),
    })
}

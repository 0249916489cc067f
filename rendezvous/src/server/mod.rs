//! The server of an endpoint, on a thread of its own.
//!
//! One task steps `elasticrun_core::rendezvous::server::Server`. Each connection has a task that reads, writes and checks
//! frames. A peer that does not finish its opening in time, sends something else, or does not read, loses its connection.

mod accept;
mod connection;
mod run;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use tokio::sync::oneshot;

use crate::{Endpoint, Error};

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    nodes: Arc<Nodes>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread. A forked child has only the memory.
    pid: u32,
}

/// The connected nodes of each run.
#[derive(Debug, Default)]
struct Nodes {
    of_runs: Mutex<BTreeMap<String, usize>>,
    changed: Condvar,
}

impl Server {
    /// Listens at the endpoint and starts the thread.
    ///
    /// # Errors
    /// Another program has the port, or the host is not this machine.
    pub fn start(endpoint: &Endpoint) -> Result<Self, Error> {
        let listener = endpoint.listen()?;
        let prepared = listener.set_nonblocking(true);
        let address = prepared
            .and_then(|()| listener.local_addr())
            .map_err(Error::system("listen"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::system("start the server of the rendezvous"))?;
        let nodes = Arc::new(Nodes::default());
        let (stop, stopped) = oneshot::channel();
        let counted = Arc::clone(&nodes);
        let thread = thread::Builder::new()
            .name("elasticrun-rdzv".into())
            .spawn(move || {
                let served = runtime.block_on(run::run(listener, first_token(), counted, stopped));
                if let Err(error) = served {
                    tracing::error!(%error, "the server of the rendezvous ended");
                }
            })
            .map_err(Error::system("start a thread"))?;
        tracing::info!(%address, "serving the rendezvous");
        Ok(Self {
            address,
            nodes,
            stop: Some(stop),
            thread: Some(thread),
            pid: std::process::id(),
        })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connected nodes of a run, or of all runs.
    pub fn nodes(&self, run: Option<&str>) -> usize {
        count(&self.nodes.lock(), run)
    }

    /// Waits until at most `rest` nodes of a run, or of all runs, are connected. Whether that is so within `timeout`.
    pub fn wait_for_leave(&self, run: Option<&str>, rest: usize, timeout: Duration) -> bool {
        let nodes = self.nodes.lock();
        let stay = |nodes: &mut BTreeMap<String, usize>| count(nodes, run) > rest;
        let waited = (self.nodes.changed).wait_timeout_while(nodes, timeout, stay);
        let (nodes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        count(&nodes, run) <= rest
    }

    /// Ends the server after what it has answered is sent.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails if it has ended.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && std::process::id() == self.pid
            && thread.join().is_err()
        {
            tracing::error!("the server of the rendezvous failed");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.of_runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, run: &str, nodes: usize) {
        let mut of_runs = self.lock();
        match nodes {
            0 => of_runs.remove(run),
            nodes => of_runs.insert(run.to_owned(), nodes),
        };
        self.changed.notify_all();
    }
}

fn count(of_runs: &BTreeMap<String, usize>, run: Option<&str>) -> usize {
    match run {
        Some(run) => of_runs.get(run).copied().unwrap_or(0),
        None => of_runs.values().sum(),
    }
}

/// The first token of this server: the microseconds since 1970. An earlier server of the endpoint made less than a million
/// writes a second, so its tokens are smaller. A clock that was set back makes nodes wait until it catches up.
fn first_token() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.unwrap_or_default().as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX / 2)
}

/// The error of a peer that breaks the protocol.
fn violation(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

//! Attaches to the agent: the environment, the socket, the first two messages.

use std::{
    env, io,
    net::{IpAddr, TcpListener},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use elasticrun_protocol::{FromWorker, Generation, LocalRank, Process};
use elasticrun_shm::liveness;

use super::{
    AgentConnection, Inbox,
    connection::{Transport, send},
    thread::AgentThread,
};
use crate::{Error, memory::Memory, standalone, store::Client};

/// Names the socket of the agent. Unset without an agent.
pub(crate) const SOCKET: &str = "ELASTICRUN_AGENT_SOCKET";
const LOCAL_RANK: &str = "ELASTICRUN_LOCAL_RANK";
const GENERATION: &str = "ELASTICRUN_GENERATION";

/// Timeout of the agent's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A process becomes a worker once. A forked child inherits this, as intended.
static IS_WORKER: AtomicBool = AtomicBool::new(false);

impl AgentConnection {
    /// Attaches to the agent of this process, or sets up a single process if there is none.
    pub(crate) fn open() -> Result<Self, Error> {
        if IS_WORKER.swap(true, Ordering::SeqCst) {
            return Err(Error::RunTwice);
        }
        match attach()? {
            Some(connection) => Ok(connection),
            None => {
                IS_WORKER.store(false, Ordering::SeqCst);
                standalone::connection()
            }
        }
    }
}

/// Attaches to the agent that the environment names, and starts the SDK's thread. `None` if it
/// names none.
fn attach() -> Result<Option<AgentConnection>, Error> {
    let Some(socket) = env::var_os(SOCKET) else {
        return Ok(None);
    };
    let process = Process {
        local_rank: LocalRank(number(LOCAL_RANK)?),
        generation: Generation(number(GENERATION)?),
    };
    let stream = UnixStream::connect(&socket).map_err(|error| Error::AgentLost {
        why: format!("{}: {error}", socket.display()),
    })?;
    let store = Client::for_worker(socket.clone().into(), process);
    let inbox = Arc::new(Inbox::with_store(store));
    let reader = stream.try_clone();
    let reader = reader.map_err(Error::system("use the agent's socket"))?;
    send(
        &stream,
        &FromWorker::Attach {
            local_rank: process.local_rank,
            generation: process.generation,
            pid: std::process::id(),
            buffers: 4,
        },
    )?;
    // Never joined: the agent uses this thread to detect the end of the process.
    thread::Builder::new()
        .name("elasticrun".into())
        .spawn({
            let inbox = Arc::clone(&inbox);
            move || AgentThread::new(reader, inbox).run()
        })
        .map_err(Error::system("start a thread"))?;
    let welcome = inbox.wait_for_welcome(Instant::now() + ANSWER_TIMEOUT)?;
    liveness::announce_exit(&welcome.page);
    tracing::debug!(%process, "attached to the agent");
    Ok(Some(AgentConnection {
        transport: Transport::Agent {
            stream,
            socket: socket.into(),
        },
        inbox,
        page: welcome.page,
        memory: Memory::open(welcome.commits, welcome.commit_memory)?,
        listener: listen(&welcome.listen)?,
        key: welcome.data_key,
        connect_timeout: welcome.connect_timeout,
        encrypt: welcome.encrypt_data,
        identity: welcome.identity,
    }))
}

fn number(name: &'static str) -> Result<u32, Error> {
    let value = env::var(name).unwrap_or_default();
    let parsed = value.parse();
    parsed.map_err(|_| Error::Environment { name, value })
}

fn listen(address: &str) -> Result<TcpListener, Error> {
    let bound = match address.parse::<IpAddr>() {
        Ok(address) => TcpListener::bind((address, 0)),
        Err(error) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{address}: {error}"),
        )),
    };
    bound.map_err(Error::system(
        "listen for peers at the address that the agent gave",
    ))
}

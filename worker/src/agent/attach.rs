//! Becoming a worker: the environment, the socket, the first two messages.

use std::{
    env, io,
    net::{IpAddr, TcpListener},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use elasticrun_protocol::{FromWorker, Generation, LocalRank, Process, auth::Bytes32};
use elasticrun_shm::{commit::CommitFds, liveness, page::WorkerPage};

use super::{
    Inbox, Link,
    link::{Line, say},
    thread::Listener,
};
use crate::{Error, memory::Memory, store::Client};

/// Names the socket of the agent. Without it there is none.
pub(crate) const SOCKET: &str = "ELASTICRUN_AGENT_SOCKET";
const LOCAL_RANK: &str = "ELASTICRUN_LOCAL_RANK";
const GENERATION: &str = "ELASTICRUN_GENERATION";

/// How long an agent may take to let a worker in.
const ANSWER: Duration = Duration::from_secs(60);

/// What the agent gives a worker that it lets in.
#[derive(Debug)]
pub(super) struct Welcome {
    pub(super) page: WorkerPage,
    pub(super) commits: CommitFds,
    pub(super) data_key: Bytes32,
    pub(super) listen: String,
    pub(super) connect_timeout: Duration,
}

/// Attaches to the agent that the environment names, and starts the SDK's thread. `None` if it names none.
pub(crate) fn attach() -> Result<Option<Link>, Error> {
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
    let store = Client::of_worker(socket.into(), process);
    let inbox = Arc::new(Inbox::with_store(store));
    let own = stream.try_clone();
    let own = own.map_err(Error::system("use the agent's socket"))?;
    say(
        &stream,
        &FromWorker::Attach {
            local_rank: process.local_rank,
            generation: process.generation,
            pid: std::process::id(),
        },
    )?;
    // Never joined: it is this process's sign of life, and ends with it.
    thread::Builder::new()
        .name("elasticrun".into())
        .spawn({
            let inbox = Arc::clone(&inbox);
            move || Listener::new(own, inbox).run()
        })
        .map_err(Error::system("start a thread"))?;
    let welcome = inbox.wait_for_welcome(Instant::now() + ANSWER)?;
    liveness::announce_exit(&welcome.page);
    tracing::debug!(%process, "attached to the agent");
    Ok(Some(Link {
        line: Line::Agent(stream),
        inbox,
        page: welcome.page,
        memory: Memory::open(welcome.commits)?,
        listener: listen(&welcome.listen)?,
        key: welcome.data_key,
        connect_timeout: welcome.connect_timeout,
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

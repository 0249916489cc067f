//! Fetches a base that no member holds to rank 0: from a dead process of this host, or from another
//! host.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use elasticrun_core::worker::{BaseSource, Machine, RoundId};
use elasticrun_protocol::{
    CommitId, CommitKey, Process,
    control::{Keeper, MemoryAnswer, MemoryRequest, Start, Via},
    opening::Purpose,
};
use elasticrun_shm::commit::CommitReader;
use elasticrun_tls::{ClientConfig, Dialled};
use socket2::{Domain, Socket, Type};

use super::relays::Skipped;
use crate::{
    Error,
    agent::{AgentConnection, Inbox, StartedRound},
    memory::fingerprint,
};

/// How long the other side may be silent. It computes a digest over all bytes before it answers.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Copies the base of the round from its keeper into this process's memory.
pub(super) fn copy_base(
    agent: &mut AgentConnection,
    started: &mut StartedRound,
    base: CommitId,
    from: BaseSource,
) -> Result<(), Error> {
    match from {
        BaseSource::SameHost => {
            let fds = started.keeper.take();
            let commit =
                CommitReader::open(fds.ok_or(Error::BaseMissing { id: base })?)?.read(base)?;
            agent.memory.write(base, |write| {
                write
                    .append(commit.bytes().len())?
                    .copy_from_slice(commit.bytes());
                match commit.is_intact() {
                    true => Ok(()),
                    false => Err(Error::Damaged {
                        id: base,
                        from: "a process of this host",
                    }),
                }
            })
        }
        BaseSource::OtherHost => fetch_from_host(agent, started, base),
        BaseSource::None => Err(Error::BaseMissing { id: base }),
    }
}

fn fetch_from_host(
    agent: &mut AgentConnection,
    started: &StartedRound,
    base: CommitId,
) -> Result<(), Error> {
    let Some(keeper) = &started.start.keeper else {
        return Err(Error::BaseMissing { id: base });
    };
    with_transfer(agent, started, |agent, socket| {
        fetch(agent, keeper, base, socket)
    })
}

/// Runs a transfer from another host, which an abort of the round ends. Reports a host that cannot be reached.
fn with_transfer<T>(
    agent: &mut AgentConnection,
    started: &StartedRound,
    transfer: impl FnOnce(&mut AgentConnection, NewSocket) -> Result<T, Error>,
) -> Result<T, Error> {
    let watch = NewSocket {
        id: started.id(),
        inbox: Arc::clone(&agent.inbox),
    };
    let fetched = transfer(agent, watch);
    agent.inbox.forget_transfer();
    match fetched {
        Err(Error::Fetch {
            id,
            address,
            source,
        }) => {
            tracing::warn!(commit = %id, %address, error = %source, "the state cannot be fetched");
            let host = host_with_address(&started.start, address.ip());
            let over = agent
                .inbox
                .with_machine(|machine| machine.fetch_failed(host));
            Err(over.map_or(
                Error::Fetch {
                    id,
                    address,
                    source,
                },
                Error::from,
            ))
        }
        fetched => {
            agent.inbox.with_machine(Machine::fetched);
            fetched
        }
    }
}

/// Makes the socket of a transfer, which the end of the round closes.
struct NewSocket {
    id: RoundId,
    inbox: Arc<Inbox>,
}

impl NewSocket {
    fn toward(self, address: SocketAddr) -> Result<Socket, Error> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)
            .map_err(Error::system("open a connection"))?;
        let copy = socket
            .try_clone()
            .map_err(Error::system("open a connection"))?;
        match self.inbox.watch_transfer(self.id, copy) {
            true => Ok(socket),
            false => Err(self.inbox.with_machine(Machine::over).into()),
        }
    }
}

/// Parts of a shard that another host holds.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    /// The process whose memory has the shard.
    pub(super) process: Process,
    /// The address at which the agent of its host serves it.
    pub(super) holder: SocketAddr,
    pub(super) key: CommitKey,
    /// Offsets and lengths in its bytes.
    pub(super) ranges: &'a [(u64, u64)],
}

/// Fetches parts of a shard from the agent that keeps it. Returns the parts, one after the other.
pub(super) fn fetch_ranges(
    agent: &mut AgentConnection,
    started: &StartedRound,
    parts: Parts<'_>,
) -> Result<Vec<u8>, Error> {
    with_transfer(agent, started, |agent, socket| {
        fetch_parts(agent, socket, parts.holder, parts, (Vec::new(), 0))
    })
}

/// Fetches parts of a shard from the first of some agents that passes them on. None if none does: the agent that keeps the
/// shard is to be asked.
pub(super) fn fetch_passed(
    agent: &mut AgentConnection,
    started: &StartedRound,
    parts: Parts<'_>,
    relays: &[Via],
    skipped: &Skipped,
) -> Result<Option<Vec<u8>>, Error> {
    skipped.first_answer(relays, parts.holder, |relay, via| {
        let socket = NewSocket {
            id: started.id(),
            inbox: Arc::clone(&agent.inbox),
        };
        let asked = (via, relay.requests);
        let fetched = fetch_parts(agent, socket, relay.agent, parts, asked);
        agent.inbox.forget_transfer();
        fetched
    })
}

/// Fetches parts of a shard from an agent, which gets them through others, with so many requests.
fn fetch_parts(
    agent: &AgentConnection,
    socket: NewSocket,
    address: SocketAddr,
    parts: Parts<'_>,
    (via, requests): (Vec<Via>, u32),
) -> Result<Vec<u8>, Error> {
    let id = parts.key.commit;
    let fetch_error = |source: io::Error| Error::Fetch {
        id,
        address,
        source,
    };
    let length = parts.ranges.iter().map(|(_, len)| len).sum::<u64>();
    let (config, timeout) = (agent.to_agents()?, agent.connect_timeout);
    let socket = socket.toward(address)?;
    let mut source = connect(socket, address, &config, timeout).map_err(fetch_error)?;
    let request = MemoryRequest {
        process: parts.process,
        key: parts.key,
        newer: false,
        ranges: parts.ranges.to_vec(),
        background: false,
        via,
        requests,
    };
    let digest = match ask(&mut source, &request).map_err(fetch_error)? {
        MemoryAnswer::Found {
            length: found,
            digest,
            ..
        } if found == length => digest,
        MemoryAnswer::Found { .. } => {
            let why =
                "the agent of the other host sends whole commits; run one release on all hosts";
            return Err(Error::Protocol {
                why: why.to_owned(),
            });
        }
        MemoryAnswer::Missing | MemoryAnswer::Overwritten => {
            let shard = parts.key.shard.index;
            return Err(Error::ShardMissing { id, shard });
        }
    };
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    source.read_exact(&mut bytes).map_err(fetch_error)?;
    match fingerprint(&bytes).digest == digest {
        true => Ok(bytes),
        false => Err(Error::Damaged {
            id,
            from: "the agent that keeps it",
        }),
    }
}

/// The host of the round with this address, if it is a neighbour and the only one there.
fn host_with_address(start: &Start, address: IpAddr) -> Option<u32> {
    let mut hosts = start.peers.iter().filter(|(_, peer)| peer.ip() == address);
    let (host, _) = hosts.next()?;
    hosts.next().is_none().then_some(*host)
}

fn fetch(
    agent: &mut AgentConnection,
    keeper: &Keeper,
    base: CommitId,
    socket: NewSocket,
) -> Result<(), Error> {
    let config = agent.to_agents()?;
    let socket = socket.toward(keeper.address)?;
    let fetch_error = |source: io::Error| Error::Fetch {
        id: base,
        address: keeper.address,
        source,
    };
    let timeout = agent.connect_timeout;
    let mut source = connect(socket, keeper.address, &config, timeout).map_err(fetch_error)?;
    let request = MemoryRequest {
        process: keeper.process,
        key: base.into(),
        newer: false,
        ranges: Vec::new(),
        background: false,
        via: Vec::new(),
        requests: 0,
    };
    let (length, digest) = match ask(&mut source, &request).map_err(fetch_error)? {
        MemoryAnswer::Found { length, digest, .. } => (length, digest),
        MemoryAnswer::Missing | MemoryAnswer::Overwritten => {
            return Err(Error::BaseMissing { id: base });
        }
    };
    let len = usize::try_from(length).unwrap_or(usize::MAX);
    agent.memory.write(base, |write| {
        let body = write.append(len)?;
        source.read_exact(body).map_err(fetch_error)?;
        match fingerprint(body).digest == digest {
            true => Ok(()),
            false => Err(Error::Damaged {
                id: base,
                from: "the agent that keeps it",
            }),
        }
    })
}

/// Opens a connection to an agent that keeps commits.
fn connect(
    socket: Socket,
    address: SocketAddr,
    config: &ClientConfig,
    timeout: Duration,
) -> io::Result<Dialled<TcpStream>> {
    socket.connect_timeout(&address.into(), timeout)?;
    socket.set_tcp_nodelay(true)?;
    // Detects a cut path within about the timeout. The agent itself may compute for longer.
    elasticrun_collectives::watch_path(&socket, timeout)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
    stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
    Dialled::open(stream, config, Purpose::Memory)
}

/// Sends a request, and receives the answer.
fn ask(source: &mut Dialled<TcpStream>, request: &MemoryRequest) -> io::Result<MemoryAnswer> {
    source.send(request)?;
    source.receive()
}

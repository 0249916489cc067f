//! Fetches a base that no member holds to rank 0: from a dead process of this host, or from another
//! host.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use elasticrun_core::worker::{BaseSource, Machine, RoundId};
use elasticrun_protocol::{
    CommitId, CommitKey, Process,
    control::{Keeper, MemoryAnswer, MemoryRequest, Start},
    frame::{self, FrameBuffer},
    opening::{Hello, Purpose, Verdict},
};
use elasticrun_shm::commit::CommitReader;
use elasticrun_tls::{Blocking, ClientConfig, Session};
use serde::{Serialize, de::DeserializeOwned};
use socket2::{Domain, Socket, Type};

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

/// Fetches parts of a shard from the agent of another host: offsets and lengths in its bytes. Returns the parts, one after
/// the other.
pub(super) fn fetch_ranges(
    agent: &mut AgentConnection,
    started: &StartedRound,
    (process, address): (Process, SocketAddr),
    key: CommitKey,
    ranges: &[(u64, u64)],
) -> Result<Vec<u8>, Error> {
    let id = key.commit;
    let fetch_error = |source: io::Error| Error::Fetch {
        id,
        address,
        source,
    };
    let length = ranges.iter().map(|(_, len)| len).sum::<u64>();
    with_transfer(agent, started, |agent, socket| {
        let (config, timeout) = (agent.to_agents()?, agent.connect_timeout);
        let socket = socket.toward(address)?;
        let mut source = Source::connect(socket, address, &config, timeout).map_err(fetch_error)?;
        let request = MemoryRequest {
            process,
            key,
            newer: false,
            ranges: ranges.to_vec(),
            background: false,
            via: Vec::new(),
            requests: 0,
        };
        let digest = match source.ask(&request).map_err(fetch_error)? {
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
                let shard = key.shard.index;
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
    })
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
    let mut source =
        Source::connect(socket, keeper.address, &config, timeout).map_err(fetch_error)?;
    let request = MemoryRequest {
        process: keeper.process,
        key: base.into(),
        newer: false,
        ranges: Vec::new(),
        background: false,
        via: Vec::new(),
        requests: 0,
    };
    let (length, digest) = match source.ask(&request).map_err(fetch_error)? {
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

/// A connection to an agent that keeps commits.
struct Source {
    stream: Blocking<TcpStream>,
    frames: FrameBuffer,
}

impl Source {
    fn connect(
        socket: Socket,
        address: SocketAddr,
        config: &ClientConfig,
        timeout: Duration,
    ) -> io::Result<Self> {
        socket.connect_timeout(&address.into(), timeout)?;
        socket.set_tcp_nodelay(true)?;
        // Detects a cut path within about the timeout. The agent itself may compute for longer.
        elasticrun_collectives::watch_path(&socket, timeout)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
        stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
        let session = Session::client(config).map_err(io::Error::other)?;
        let mut source = Self {
            stream: Blocking::handshake(session, stream)?,
            frames: FrameBuffer::default(),
        };
        let hello = Hello::new(Purpose::Memory);
        source.send(&hello)?;
        let verdict: Verdict = source.receive()?;
        hello.answered(verdict).map_err(io::Error::other)?;
        Ok(source)
    }

    fn ask(&mut self, request: &MemoryRequest) -> io::Result<MemoryAnswer> {
        self.send(request)?;
        self.receive()
    }

    fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let bytes = frame::to_frame(message).map_err(io::Error::other)?;
        self.stream.write_all(&bytes)
    }

    fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        frame::decode(&self.body()?).map_err(io::Error::other)
    }

    fn body(&mut self) -> io::Result<impl std::ops::Deref<Target = [u8]> + use<>> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(body) = self.frames.next_body().map_err(io::Error::other)? {
                return Ok(body);
            }
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.frames.extend(&bytes[..count]),
            }
        }
    }

    /// Reads raw bytes after a message. Some may have arrived with it.
    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let early = self.frames.buffer();
        let count = early.len().min(bytes.len());
        let (first, rest) = bytes.split_at_mut(count);
        first.copy_from_slice(&early[..count]);
        early.truncate(0);
        self.stream.read_exact(rest)
    }
}

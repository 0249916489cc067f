//! Bringing rank 0 to a base that no member holds: from a dead process of this host, or from another host.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, TcpStream},
    time::Duration,
};

use elasticrun_protocol::{
    CommitId,
    auth::{self, Challenge, Dialler, Purpose, Secret, Verdict},
    control::{Keeper, MemoryAnswer, MemoryRequest, Start},
    frame::{self, FrameBuffer},
};
use elasticrun_shared::commit::CommitReader;
use serde::{Serialize, de::DeserializeOwned};
use socket2::{Domain, Socket, Type};

use crate::{
    Error, Interrupt,
    agent::{Link, Started},
    memory::Print,
};

/// How long the other side may be silent; it computes a digest over all before it answers.
const SILENCE: Duration = Duration::from_secs(60);

/// Has this process hold the base of the round.
pub(super) fn bring_base(
    link: &mut Link,
    started: &mut Started,
    base: CommitId,
) -> Result<(), Error> {
    if let Some(fds) = started.keeper.take() {
        let commit = CommitReader::open(fds)?.read(base)?;
        return link.memory.write(base, |write| {
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
        });
    }
    let Some(keeper) = &started.start.keeper else {
        return Err(Error::BaseMissing { id: base });
    };
    let secret = link.secret()?;
    let session = started.session();
    let socket = Socket::new(Domain::for_address(keeper.address), Type::STREAM, None)
        .map_err(Error::system("open a connection"))?;
    let copy = socket
        .try_clone()
        .map_err(Error::system("open a connection"))?;
    if !link.inbox.watch_transfer(session, copy) {
        return Err(link
            .inbox
            .ended()
            .unwrap_or(Interrupt::WorkersFailed.into()));
    }
    let fetched = fetch(link, keeper, base, &secret, socket);
    link.inbox.forget_transfer();
    match fetched {
        // The host may be gone, which the driver will see; or unreachable from here, which nobody else sees.
        Err(Error::Fetch {
            id,
            address,
            source,
        }) => {
            tracing::warn!(commit = %id, %address, error = %source, "the state cannot be fetched");
            link.inbox
                .cannot_reach(host_at(&started.start, address.ip()));
            link.failed_fetches += 1;
            if link.failed_fetches >= MOST_FAILED {
                return Err(Error::Fetch {
                    id,
                    address,
                    source,
                });
            }
            Err(link
                .inbox
                .ended()
                .unwrap_or(Interrupt::WorkersFailed.into()))
        }
        fetched => {
            link.failed_fetches = 0;
            fetched
        }
    }
}

/// The host of the round that is at an address, if it is a neighbour and the only one there.
fn host_at(start: &Start, address: IpAddr) -> Option<u32> {
    let mut there = start.peers.iter().filter(|(_, peer)| peer.ip() == address);
    let (host, _) = there.next()?;
    there.next().is_none().then_some(*host)
}

/// Rounds in a row that may fail so.
const MOST_FAILED: u32 = 3;

fn fetch(
    link: &mut Link,
    keeper: &Keeper,
    base: CommitId,
    secret: &Secret,
    socket: Socket,
) -> Result<(), Error> {
    let failed = |source: io::Error| Error::Fetch {
        id: base,
        address: keeper.address,
        source,
    };
    let timeout = link.connect_timeout;
    let mut source = Source::connect(socket, keeper, secret, timeout).map_err(failed)?;
    let request = MemoryRequest {
        process: keeper.process,
        commit: base,
    };
    let (length, digest) = match source.ask(&request).map_err(failed)? {
        MemoryAnswer::Found { length, digest } => (length, digest),
        MemoryAnswer::Missing => return Err(Error::BaseMissing { id: base }),
    };
    let len = usize::try_from(length).unwrap_or(usize::MAX);
    link.memory.write(base, |write| {
        let body = write.append(len)?;
        source.read_exact(body).map_err(failed)?;
        match Print::of(body).digest == digest {
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
    stream: TcpStream,
    frames: FrameBuffer,
}

impl Source {
    fn connect(
        socket: Socket,
        keeper: &Keeper,
        secret: &Secret,
        timeout: Duration,
    ) -> io::Result<Self> {
        socket.connect_timeout(&keeper.address.into(), timeout)?;
        socket.set_tcp_nodelay(true)?;
        // What a path that is cut has to say within about the timeout; its agent may compute for longer.
        elasticrun_collectives::watch_path(&socket, timeout)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        let mut source = Self {
            stream,
            frames: FrameBuffer::unproven(),
        };
        let nonce = auth::nonce().map_err(io::Error::other)?;
        let dialler = Dialler::new(secret.clone(), Purpose::Memory, nonce);
        source.send(dialler.hello())?;
        let body = source.body()?;
        let Ok(challenge) = frame::decode::<Challenge>(&body) else {
            return Err(refusal(frame::decode(&body).map_err(io::Error::other)?));
        };
        source.send(&dialler.answer(&challenge).map_err(io::Error::other)?)?;
        match source.receive()? {
            Verdict::Welcome => {
                source.frames.trust();
                Ok(source)
            }
            refused => Err(refusal(refused)),
        }
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

    /// Raw bytes after a message; some may have come with it.
    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let early = self.frames.buffer();
        let count = early.len().min(bytes.len());
        let (first, rest) = bytes.split_at_mut(count);
        first.copy_from_slice(&early[..count]);
        early.truncate(0);
        self.stream.read_exact(rest)
    }
}

fn refusal(verdict: Verdict) -> io::Error {
    io::Error::other(match verdict {
        Verdict::Welcome => "it lets us in before we have proved ourselves".to_owned(),
        Verdict::Refused { why } => why,
    })
}

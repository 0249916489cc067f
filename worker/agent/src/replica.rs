//! Copies commits of other hosts into memory, over the port that serves them to workers ([`crate::memory_port`]).
//!
//! The connection is opened on the loop's runtime. A thread of the lowest priority receives the bytes, so that no copy takes
//! a processor from training. It checks their digest, and seals the commit last. A copy that is cancelled ends at once,
//! also if its source is silent: its socket is shut down.

use std::{
    io::{self, Read},
    net::{Shutdown, SocketAddr, TcpStream as StdStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use elasticrun_core::agent::{Copied, Wanted};
use elasticrun_protocol::{
    CommitId, CommitKey, DriverEpoch, Process, Round,
    control::{Keeper, MemoryAnswer, MemoryRequest},
    opening::Purpose,
};
use elasticrun_shm::{
    available_memory,
    commit::{self, CommitMemory, CommitWriter},
};
use elasticrun_tls::{
    Blocking,
    opening::{self, Connection},
};
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
use tracing::Instrument as _;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    connect::HANDSHAKE_TIMEOUT, error::PeerError, inbox::InboxMessage, keys::Keys, scheduling,
};

/// How long the other agent may be silent. It computes a digest over all bytes before it answers.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that are received and hashed at a time, at most.
const CHUNK: usize = 1 << 20;

/// Older than all commits.
const OLDEST: CommitId = CommitId {
    epoch: DriverEpoch(0),
    round: Round(0),
    count: 0,
};

/// Why there is no replica.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the agent of host {host} at {address}: {source}")]
    Peer {
        host: String,
        address: SocketAddr,
        source: Box<PeerError>,
    },
    #[error(
        "the commit has {bytes} bytes, and a host may keep {limit} for each of two replicas; raise --commit-memory"
    )]
    TooLarge { bytes: u64, limit: u64 },
    #[error("the commit has {bytes} bytes, and this host has {available} bytes of memory left")]
    NoRoom { bytes: u64, available: u64 },
    #[error(
        "the bytes from host {host} do not match their checksum: a worker wrote over the commit meanwhile, or they are damaged"
    )]
    Damaged { host: String },
    #[error(
        "the worker on host {host} wrote over the commit while it was read: it has no memory for a third one, raise --commit-memory"
    )]
    Overwritten { host: String },
    #[error(transparent)]
    Memory(#[from] commit::Error),
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
}

/// One copy.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaCopy {
    /// The process that never lived, whose memory gets the commit.
    pub(crate) process: Process,
    /// The process that has the commit.
    pub(crate) keeper: Keeper,
    /// The commit.
    pub(crate) wanted: Wanted,
    /// The largest commit, in bytes.
    pub(crate) limit: Option<u64>,
    /// Empty memory.
    pub(crate) memory: Arc<CommitMemory>,
}

/// Copies commits. [`InboxMessage::Copied`] follows each copy.
#[derive(Debug)]
pub(crate) struct Replicator {
    inbox: mpsc::Sender<InboxMessage>,
    keys: Arc<Keys>,
    /// The newest copy.
    newest: Option<(Process, Cancel)>,
}

/// Ends a copy before its time.
#[derive(Clone, Debug, Default)]
struct Cancel(Arc<Mutex<Connected>>);

#[derive(Debug, Default)]
enum Connected {
    #[default]
    NotYet,
    To(StdStream),
    Cancelled,
}

impl Cancel {
    fn lock(&self) -> std::sync::MutexGuard<'_, Connected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self) {
        if let Connected::To(socket) = std::mem::replace(&mut *self.lock(), Connected::Cancelled) {
            // Fails if the connection has ended already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// The copy receives from this socket from now on. Fails if it was cancelled before.
    fn connected(&self, socket: &StdStream) -> io::Result<()> {
        let mut connected = self.lock();
        match *connected {
            Connected::Cancelled => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => {
                *connected = Connected::To(socket.try_clone()?);
                Ok(())
            }
        }
    }
}

impl Replicator {
    pub(crate) fn new(inbox: mpsc::Sender<InboxMessage>, keys: Arc<Keys>) -> Self {
        let newest = None;
        Self {
            inbox,
            keys,
            newest,
        }
    }

    /// Ends the copy into the memory of this process, if it goes on.
    pub(crate) fn cancel(&mut self, process: Process) {
        if let Some((_, cancel)) = self.newest.take_if(|(newest, _)| *newest == process) {
            cancel.cancel();
        }
    }

    /// Begins a copy, with this bandwidth in bytes for each second.
    pub(crate) fn copy(&mut self, copy: ReplicaCopy, bandwidth: Option<u64>) {
        let (inbox, keys) = (self.inbox.clone(), self.keys.clone());
        let cancel = Cancel::default();
        self.newest = Some((copy.process, cancel.clone()));
        let copying = async move {
            let begun = Instant::now();
            let process = copy.process;
            let end = move |result: Result<Option<(CommitId, u64)>, Error>| InboxMessage::Copied {
                process,
                copied: match result {
                    Ok(Some((commit, bytes))) => Copied::Whole {
                        commit,
                        bytes,
                        took: begun.elapsed(),
                    },
                    Ok(None) => Copied::NothingNewer,
                    Err(error) => Copied::Failed {
                        why: error.to_string(),
                    },
                },
            };
            let transfer = match request(&copy, &keys, &cancel).await {
                Ok(Some(transfer)) => transfer,
                Ok(None) => return drop(inbox.send(end(Ok(None))).await),
                Err(error) => return drop(inbox.send(end(Err(error))).await),
            };
            let sender = inbox.clone();
            let started = thread::Builder::new()
                .name("replica".into())
                .spawn(move || {
                    scheduling::run_at_lowest_priority();
                    let received = transfer.receive(&copy, bandwidth);
                    // The other agent sees the end of the connection only once this socket is closed as well.
                    cancel.cancel();
                    // Fails only at the agent's own end.
                    let _ = sender.blocking_send(end(received.map(Some)));
                });
            if let Err(error) = started {
                let why = Error::Thread(error).to_string();
                let copied = Copied::Failed { why };
                let _ = inbox.send(InboxMessage::Copied { process, copied }).await;
            }
        };
        tokio::spawn(copying.in_current_span());
    }
}

/// Bytes that another agent sends.
struct Transfer {
    key: CommitKey,
    length: u64,
    digest: u64,
    state_version: u64,
    /// The first bytes, which came with the answer.
    early: Vec<u8>,
    stream: Blocking<StdStream>,
}

/// Asks for the commit. None if there is no newer one, or if the shard is not there.
async fn request(
    copy: &ReplicaCopy,
    keys: &Keys,
    cancel: &Cancel,
) -> Result<Option<Transfer>, Error> {
    let of_peer = |source: PeerError| Error::Peer {
        host: copy.keeper.host.to_string(),
        address: copy.keeper.address,
        source: Box::new(source),
    };
    let asking = ask(copy, keys);
    let (connection, answer) = timeout(SILENCE_TIMEOUT, asking)
        .await
        .unwrap_or(Err(PeerError::TimedOut))
        .map_err(of_peer)?;
    let (length, digest, key, state_version) = match answer {
        MemoryAnswer::Found {
            length,
            digest,
            key,
            state_version,
        } => match (key, copy.wanted) {
            (Some(key), Wanted::Newer(_)) | (None, Wanted::Shard(key)) => {
                (length, digest, key, state_version)
            }
            _ => return Ok(None),
        },
        MemoryAnswer::Overwritten => {
            let host = copy.keeper.host.to_string();
            return Err(Error::Overwritten { host });
        }
        MemoryAnswer::Missing => return Ok(None),
    };
    if let Some(limit) = copy.limit.filter(|limit| length > *limit) {
        return Err(Error::TooLarge {
            bytes: length,
            limit,
        });
    }
    if let Some(available) = available_memory().filter(|available| length > *available) {
        return Err(Error::NoRoom {
            bytes: length,
            available,
        });
    }
    let blocked = blocking(connection, cancel);
    let (early, stream) = blocked.map_err(|error| of_peer(error.into()))?;
    Ok(Some(Transfer {
        key,
        length,
        digest,
        state_version,
        early,
        stream,
    }))
}

async fn ask(
    copy: &ReplicaCopy,
    keys: &Keys,
) -> Result<(Connection<TcpStream>, MemoryAnswer), PeerError> {
    let stream = timeout(HANDSHAKE_TIMEOUT, TcpStream::connect(copy.keeper.address))
        .await
        .map_err(|_| PeerError::TimedOut)??;
    stream.set_nodelay(true)?;
    let mut connection =
        opening::dial(stream, &keys.to_agents, Purpose::Memory, HANDSHAKE_TIMEOUT).await?;
    let (key, newer) = match copy.wanted {
        Wanted::Newer(than) => (than.unwrap_or(OLDEST).into(), true),
        Wanted::Shard(key) => (key, false),
    };
    let request = MemoryRequest {
        process: copy.keeper.process,
        key,
        newer,
        ranges: Vec::new(),
        background: true,
        via: Vec::new(),
        requests: 0,
    };
    opening::write(&mut connection.stream, &request).await?;
    let answer = opening::read(&mut connection.stream, &mut connection.frames).await?;
    Ok((connection, answer))
}

/// The rest of a connection for a thread, after the bytes that have arrived already.
fn blocking(
    connection: Connection<TcpStream>,
    cancel: &Cancel,
) -> io::Result<(Vec<u8>, Blocking<StdStream>)> {
    let Connection {
        stream, mut frames, ..
    } = connection;
    let early = frames.buffer().to_vec();
    let (session, socket, unread) = stream.into_parts();
    let socket = socket.into_std()?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(SILENCE_TIMEOUT))?;
    cancel.connected(&socket)?;
    Ok((early, Blocking::new(session, socket, unread)))
}

impl Transfer {
    /// Receives the bytes. The memory has the commit only if they are those of the source.
    fn receive(
        mut self,
        copy: &ReplicaCopy,
        bandwidth: Option<u64>,
    ) -> Result<(CommitId, u64), Error> {
        let fds = copy.memory.fds(3).into_iter();
        let fds = fds.map(|fd| fd.try_clone_to_owned());
        let fds = fds.collect::<Result<_, _>>().map_err(Error::Thread)?;
        let mut writer = CommitWriter::open(fds)?;
        let mut write = writer.begin(self.key.commit, self.state_version)?;
        write.set_shard(self.key.shard);
        let len = usize::try_from(self.length).unwrap_or(usize::MAX);
        let body = write.append(len)?;
        let read = self.read(body, bandwidth);
        let digest = read.map_err(|source| Error::Peer {
            host: copy.keeper.host.to_string(),
            address: copy.keeper.address,
            source: Box::new(source.into()),
        })?;
        if digest != self.digest {
            let host = copy.keeper.host.to_string();
            return Err(Error::Damaged { host });
        }
        write.seal(None);
        Ok((self.key.commit, self.length))
    }

    /// Fills a body, not faster than the bandwidth, and returns its digest.
    fn read(&mut self, body: &mut [u8], bandwidth: Option<u64>) -> io::Result<u64> {
        // The source gives up a peer that reads nothing for long, so the pauses are short.
        let chunk = bandwidth.map_or(CHUNK, |limit| (limit / 4).clamp(1, CHUNK as u64) as usize);
        let (begun, mut received) = (Instant::now(), 0_u64);
        let mut hasher = Xxh3::new();
        let mut source = self.early.as_slice().chain(&mut self.stream);
        for part in body.chunks_mut(chunk) {
            source.read_exact(part)?;
            hasher.update(part);
            received += part.len() as u64;
            if let Some(limit) = bandwidth {
                let due = Duration::from_secs_f64(received as f64 / limit.max(1) as f64);
                thread::sleep(due.saturating_sub(begun.elapsed()));
            }
        }
        Ok(hasher.digest())
    }
}

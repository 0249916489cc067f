//! The port that serves commits of this host to workers of other hosts, and passes on those of others
//! ([`crate::passing_on`]).
//!
//! A peer proves by its certificate that it is an agent or a worker of the job, and then sends any number of requests
//! ([`Purpose::Memory`]). Blocking threads read the bytes, since a digest over gigabytes takes long. Those for replicas have
//! the lowest priority: a round that begins does not wait for them.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    ops::Range,
    sync::Arc,
    thread,
    time::Duration,
};

use elasticrun_protocol::{
    CommitKey,
    control::{MemoryAnswer, MemoryRequest},
    frame,
    opening::Purpose,
};
use elasticrun_tls::{
    Blocking, Error as TlsError, Handshake, Handshakes, TlsStream, enrol,
    opening::{self, Accepted, Connection},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::{JoinSet, spawn_blocking},
};
use tracing::Instrument as _;
use xxhash_rust::xxh3::Xxh3Default;

use crate::{
    Error,
    connect::HANDSHAKE_TIMEOUT,
    error::PeerError,
    keys::Keys,
    memory::{CommitCopy, CommitRegistry},
    passing_on::PassingOn,
    scheduling, spans,
};

/// The largest number of open connections. Others wait, unless one of them is silent from its beginning and gives way.
const MAX_CONNECTIONS: usize = 64;

/// How long a peer may read nothing of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// What the port serves.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// Commits of this host.
    pub(crate) registry: CommitRegistry,
    /// Those of others, as long as they are passed on.
    pub(crate) passing_on: PassingOn,
}

/// Opens the port and serves it until the set is dropped. Returns its number.
pub(crate) async fn open(
    address: IpAddr,
    keys: Arc<Keys>,
    served: Served,
    tasks: &mut JoinSet<()>,
) -> Result<u16, Error> {
    let listener = TcpListener::bind((address, 0))
        .await
        .map_err(Error::system("listen for requests of commits"))?;
    let port = listener
        .local_addr()
        .map_err(Error::system("listen for requests of commits"))?
        .port();
    tasks.spawn(serve(listener, keys, served).in_current_span());
    Ok(port)
}

async fn serve(listener: TcpListener, keys: Arc<Keys>, served: Served) {
    let mut places = Handshakes::new(MAX_CONNECTIONS);
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let (keys, served) = (keys.clone(), served.clone());
                let place = places.begin().await;
                let serving = async move {
                    serve_connection(stream, from, &place, &keys, &served).await;
                };
                connections.spawn(serving.in_current_span());
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a request of a commit");
                // Most likely the process is out of descriptors. Pause until others are closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve_connection(
    stream: TcpStream,
    from: SocketAddr,
    place: &Handshake,
    keys: &Keys,
    served: &Served,
) {
    let connection = match accept(stream, place, keys).await {
        Ok(connection) => connection,
        Err(error) if is_refusal_of_peer(&error) => {
            tracing::debug!(peer = %from, %error, "a peer at the port for commits does not trust this agent");
            return;
        }
        Err(error) => {
            tracing::warn!(peer = %from, %error, "a stranger at the port for commits");
            return;
        }
    };
    match serve_requests(connection, served).await {
        Ok(()) | Err(PeerError::Closed) => {}
        Err(error) => tracing::warn!(peer = %from, %error, "a request of a commit failed"),
    }
}

fn is_refusal_of_peer(error: &PeerError) -> bool {
    matches!(
        error,
        PeerError::Untrusted(enrol::Error::Opening(opening::Error::Tls(
            TlsError::Refused(_)
        )))
    )
}

async fn accept(
    stream: TcpStream,
    place: &Handshake,
    keys: &Keys,
) -> Result<Connection<TcpStream>, PeerError> {
    stream.set_nodelay(true)?;
    let (config, serves) = (&keys.memory_port, [Purpose::Memory]);
    let opening = opening::accept(stream, config, &serves, HANDSHAKE_TIMEOUT);
    // One that gives way to others has taken too long as well.
    let accepted = place.run(opening).await.ok_or(PeerError::TimedOut)?;
    match accepted? {
        Accepted::Opened(connection) => {
            place.proved();
            Ok(connection)
        }
        // Only a driver enrols hosts, so the handshake has failed before.
        Accepted::Enrolling(_) => Err(PeerError::Closed),
    }
}

async fn serve_requests(
    connection: Connection<TcpStream>,
    served: &Served,
) -> Result<(), PeerError> {
    let Connection {
        mut stream,
        mut frames,
        ..
    } = connection;
    loop {
        let request: MemoryRequest = opening::read(&mut stream, &mut frames).await?;
        let Served {
            registry,
            passing_on,
        } = served.clone();
        let (session, socket, unread) = stream.into_parts();
        let socket = socket.into_std()?;
        let is_copied_slowly = request.newer || request.background;
        let span = tracing::Span::current();
        let answering = move || {
            let _in_span = span.entered();
            socket.set_nonblocking(false)?;
            socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
            let mut blocking = Blocking::new(session, socket, unread);
            match request.via.is_empty() {
                true => answer(&mut blocking, request, &registry)?,
                false => passing_on.answer(&mut blocking, &request)?,
            }
            blocking.get_ref().set_nonblocking(true)?;
            Ok::<_, PeerError>(blocking.into_parts())
        };
        let (session, socket, unread) = match is_copied_slowly {
            true => at_lowest_priority(answering).await?,
            false => spawn_blocking(answering)
                .await
                .map_err(|error| io::Error::other(error.to_string()))?,
        }?;
        stream = TlsStream::new(session, TcpStream::from_std(socket)?, unread);
    }
}

/// Runs a part of a copy for another host on a thread that takes no processor from training.
async fn at_lowest_priority<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    let thread = thread::Builder::new().name("replica-source".into());
    thread.spawn(move || {
        scheduling::run_at_lowest_priority();
        // Fails only if the connection was given up.
        let _ = done.send(work());
    })?;
    result.await.map_err(io::Error::other)
}

fn answer(
    stream: &mut impl Write,
    request: MemoryRequest,
    registry: &CommitRegistry,
) -> Result<(), PeerError> {
    let (commit, parts, digest) = match find(&request, registry) {
        Ok(found) => found,
        Err(answer) => {
            spans::worker(request.process)
                .in_scope(|| tracing::debug!(commit = %request.key.commit, "a commit is not here"));
            return Ok(stream.write_all(&frame::to_frame(&answer)?)?);
        }
    };
    let info = commit.info();
    let bytes = parts.iter().map(|part| part.len() as u64).sum();
    let found = MemoryAnswer::Found {
        length: bytes,
        digest,
        key: request.newer.then(|| info.key()),
        state_version: info.state_version,
    };
    stream.write_all(&frame::to_frame(&found)?)?;
    // A live worker of an older release may overwrite the commit meanwhile. The receiver then finds that the digest does
    // not match.
    for part in parts {
        stream.write_all(&commit.bytes()[part])?;
    }
    tracing::debug!(bytes, "parts of a commit are sent");
    Ok(())
}

/// The parts of a commit that are asked for. `None` if it does not have them.
fn parts(request: &MemoryRequest, length: usize) -> Option<Vec<Range<usize>>> {
    if request.ranges.is_empty() {
        return Some(std::iter::once(0..length).collect());
    }
    let part = |(offset, len): &(u64, u64)| {
        let start = usize::try_from(*offset).ok()?;
        let end = start.checked_add(usize::try_from(*len).ok()?)?;
        (end <= length).then_some(start..end)
    };
    request.ranges.iter().map(part).collect()
}

/// The commit of a request, for another host, its parts that are asked for, and the digest of their bytes; or the answer
/// without a commit.
fn find(
    request: &MemoryRequest,
    registry: &CommitRegistry,
) -> Result<(CommitCopy, Vec<Range<usize>>, u64), MemoryAnswer> {
    let (process, key) = (request.process, &request.key);
    let commit = match request.newer {
        true => registry.copy_newer(process, key.commit),
        false => registry.copy(process, key.commit),
    };
    let commit = commit.ok_or(MemoryAnswer::Missing)?;
    let found = commit.info().key();
    let part = |key: &CommitKey| (key.shard.index, key.shard.of);
    let is_asked_for = match request.newer {
        // Without bytes the process keeps its state itself, and no other one can use the commit.
        true => part(&found) == part(key) && commit.info().len > 0,
        false => found == *key,
    };
    if !is_asked_for {
        return Err(MemoryAnswer::Missing);
    }
    let parts = parts(request, commit.bytes().len()).ok_or(MemoryAnswer::Missing)?;
    let mut digest = Xxh3Default::new();
    for part in &parts {
        digest.update(&commit.bytes()[part.clone()]);
    }
    let digest = digest.digest();
    match commit.is_intact() {
        true => Ok((commit, parts, digest)),
        false if request.newer => Err(MemoryAnswer::Overwritten),
        false => Err(MemoryAnswer::Missing),
    }
}

//! The port that serves commits of this host to workers of other hosts.
//!
//! A peer authenticates ([`Purpose::Memory`]) and then sends any number of requests. Blocking threads read the
//! bytes, since a digest over gigabytes takes long.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use elasticrun_protocol::{
    auth::{Purpose, Secret},
    control::{MemoryAnswer, MemoryRequest},
    frame::{self, FrameBuffer},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
};
use tracing::Instrument as _;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Error,
    error::PeerError,
    memory::{CommitCopy, CommitRegistry},
    spans, wire,
};

/// The largest number of open connections; others wait to be accepted.
const MAX_CONNECTIONS: usize = 64;

/// How long a peer may read nothing of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens the port and serves it until the set is dropped. Returns its number.
pub(crate) async fn open(
    address: IpAddr,
    secret: Secret,
    registry: CommitRegistry,
    tasks: &mut JoinSet<()>,
) -> Result<u16, Error> {
    let listener = TcpListener::bind((address, 0))
        .await
        .map_err(Error::system("listen for requests of commits"))?;
    let port = listener
        .local_addr()
        .map_err(Error::system("listen for requests of commits"))?
        .port();
    tasks.spawn(serve(listener, secret, registry).in_current_span());
    Ok(port)
}

async fn serve(listener: TcpListener, secret: Secret, registry: CommitRegistry) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, from)) => {
                let (secret, registry) = (secret.clone(), registry.clone());
                let served = async move {
                    let _permit = permit;
                    serve_connection(stream, from, &secret, &registry).await;
                };
                connections.spawn(served.in_current_span());
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
    mut stream: TcpStream,
    from: SocketAddr,
    secret: &Secret,
    registry: &CommitRegistry,
) {
    let mut frames = match wire::accept(&mut stream, secret, Purpose::Memory).await {
        Ok(frames) => frames,
        Err(error) => {
            tracing::warn!(peer = %from, %error, "a stranger at the port for commits");
            return;
        }
    };
    match serve_requests(stream, &mut frames, registry).await {
        Ok(()) | Err(PeerError::Closed) => {}
        Err(error) => tracing::warn!(peer = %from, %error, "a request of a commit failed"),
    }
}

async fn serve_requests(
    mut stream: TcpStream,
    frames: &mut FrameBuffer,
    registry: &CommitRegistry,
) -> Result<(), PeerError> {
    loop {
        let request: MemoryRequest = wire::read(&mut stream, frames).await?;
        let registry = registry.clone();
        let blocking = stream.into_std()?;
        let answered = spawn_blocking(move || {
            blocking.set_nonblocking(false)?;
            blocking.set_write_timeout(Some(WRITE_TIMEOUT))?;
            answer(&blocking, request, &registry)?;
            blocking.set_nonblocking(true)?;
            Ok::<_, PeerError>(blocking)
        });
        let back = answered
            .await
            .map_err(|error| io::Error::other(error.to_string()))??;
        stream = TcpStream::from_std(back)?;
    }
}

fn answer(
    mut stream: &std::net::TcpStream,
    request: MemoryRequest,
    registry: &CommitRegistry,
) -> Result<(), PeerError> {
    let Some((commit, digest)) = find(&request, registry) else {
        spans::worker(request.process)
            .in_scope(|| tracing::debug!(commit = %request.key.commit, "a commit is not here"));
        return Ok(stream.write_all(&frame::to_frame(&MemoryAnswer::Missing)?)?);
    };
    let found = MemoryAnswer::Found {
        length: commit.bytes().len() as u64,
        digest,
    };
    stream.write_all(&frame::to_frame(&found)?)?;
    // A live worker of an older release may overwrite the commit meanwhile. The receiver then finds that the digest does
    // not match.
    Ok(stream.write_all(commit.bytes())?)
}

/// The commit of a request, for another host, and the digest of its bytes.
fn find(request: &MemoryRequest, registry: &CommitRegistry) -> Option<(CommitCopy, u64)> {
    let commit = registry.copy(request.process, request.key.commit)?;
    let digest = xxh3_64(commit.bytes());
    (commit.is_intact() && commit.info().key() == request.key).then_some((commit, digest))
}

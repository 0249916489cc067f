//! The port at which commits of this host are handed to workers of other hosts.
//!
//! A connection proves itself ([`Purpose::Memory`]), then asks as often as it likes. Bytes are read on
//! threads of their own: a digest over gigabytes takes its time.

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
use elasticrun_shm::commit::Commit;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, error::PeerError, memory::Shelf, wire};

/// Connections at a time; others wait to be accepted.
const GUESTS: usize = 64;

/// How long a peer may take nothing of what it asked for.
const STUCK: Duration = Duration::from_secs(30);

/// Opens the port and serves it until the set is dropped. Gives its number.
pub(crate) async fn open(
    address: IpAddr,
    secret: Secret,
    shelf: Shelf,
    tasks: &mut JoinSet<()>,
) -> Result<u16, Error> {
    let listener = TcpListener::bind((address, 0))
        .await
        .map_err(Error::system("listen for requests of commits"))?;
    let port = listener
        .local_addr()
        .map_err(Error::system("listen for requests of commits"))?
        .port();
    tasks.spawn(serve(listener, secret, shelf));
    Ok(port)
}

async fn serve(listener: TcpListener, secret: Secret, shelf: Shelf) {
    let room = Arc::new(Semaphore::new(GUESTS));
    let mut guests = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, from)) => {
                let (secret, shelf) = (secret.clone(), shelf.clone());
                guests.spawn(async move {
                    let _place = place;
                    guest(stream, from, &secret, &shelf).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a request of a commit");
                // Out of descriptors, most likely: let others go on first.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while guests.try_join_next().is_some() {}
    }
}

async fn guest(mut stream: TcpStream, from: SocketAddr, secret: &Secret, shelf: &Shelf) {
    let mut frames = match wire::accept(&mut stream, secret, Purpose::Memory).await {
        Ok(frames) => frames,
        Err(error) => {
            tracing::warn!(peer = %from, %error, "a stranger at the port for commits");
            return;
        }
    };
    match answer_all(stream, &mut frames, shelf).await {
        Ok(()) | Err(PeerError::HungUp) => {}
        Err(error) => tracing::warn!(peer = %from, %error, "a request of a commit failed"),
    }
}

async fn answer_all(
    mut stream: TcpStream,
    frames: &mut FrameBuffer,
    shelf: &Shelf,
) -> Result<(), PeerError> {
    loop {
        let request: MemoryRequest = wire::read(&mut stream, frames).await?;
        let shelf = shelf.clone();
        let blocking = stream.into_std()?;
        let answered = spawn_blocking(move || {
            blocking.set_nonblocking(false)?;
            blocking.set_write_timeout(Some(STUCK))?;
            answer(&blocking, request, &shelf)?;
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
    shelf: &Shelf,
) -> Result<(), PeerError> {
    let Some((commit, digest)) = find(&request, shelf) else {
        tracing::debug!(process = %request.process, commit = %request.commit, "a commit is not here");
        return Ok(stream.write_all(&frame::to_frame(&MemoryAnswer::Missing)?)?);
    };
    let found = MemoryAnswer::Found {
        length: commit.bytes().len() as u64,
        digest,
    };
    stream.write_all(&frame::to_frame(&found)?)?;
    // If its worker lives and writes over it meanwhile, the digest does not fit and the other side says so.
    Ok(stream.write_all(commit.bytes())?)
}

fn find(request: &MemoryRequest, shelf: &Shelf) -> Option<(Commit, u64)> {
    let memory = shelf.get(request.process)?;
    let commit = memory
        .reader()
        .and_then(|reader| reader.read(request.commit))
        .ok()?;
    let digest = xxh3_64(commit.bytes());
    commit.is_intact().then_some((commit, digest))
}

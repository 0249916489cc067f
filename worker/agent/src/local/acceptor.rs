//! Who knocks at the Unix socket, up to its first message.

use std::{future::poll_fn, path::Path, sync::Arc, time::Duration};

use elasticrun_protocol::{FromWorker, Generation, LocalRank, Process, ToWorker, auth::Bytes32};
use tokio::{
    net::UnixListener,
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};

use super::Connection;
use crate::{Error, error::PeerError, inbox::Note};

/// Processes that may stand at the door at a time.
const AT_THE_DOOR: usize = 256;

/// How long a process may take from its connection to its first message.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);

/// A process of our user that says that it is a worker.
#[derive(Debug)]
pub(crate) struct Knock {
    pub(crate) connection: Connection,
    /// The worker that it says it is.
    pub(crate) process: Process,
    /// It has attached by another connection; this one is for requests to the store.
    pub(crate) for_store: bool,
    /// Its process id as the kernel says; none if it is in a process namespace that we do not see.
    pub(crate) pid: Option<u32>,
}

/// Opens the socket and hands on who knocks, until the set is dropped. `call_key` is for processes that ask for it.
pub(crate) fn open(
    path: &Path,
    call_key: Bytes32,
    inbox: mpsc::Sender<Note>,
    tasks: &mut JoinSet<()>,
) -> Result<(), Error> {
    // We hold the lock of the directory, so it is left from an agent that was killed.
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).map_err(Error::system("listen at the workers' socket"))?;
    tasks.spawn(async move {
        let room = Arc::new(Semaphore::new(AT_THE_DOOR));
        let mut guests = JoinSet::new();
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let inbox = inbox.clone();
                    guests.spawn(async move {
                        let _place = place;
                        match greet(Connection::new(stream), call_key).await {
                            Ok(None) => {}
                            Ok(Some(knock)) => {
                                // Fails only at the agent's own end.
                                let _ = inbox.send(Note::Knock(Box::new(knock))).await;
                            }
                            Err(error) => {
                                tracing::warn!(%error, "a stranger at the workers' socket");
                            }
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a worker");
                    // Out of descriptors, most likely: let others go on first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            while guests.try_join_next().is_some() {}
        }
    });
    Ok(())
}

/// Reads the first message. None if it is a question that is answered here.
async fn greet(mut connection: Connection, call_key: Bytes32) -> Result<Option<Knock>, PeerError> {
    let peer = connection.peer()?;
    // SAFETY: geteuid has no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    if peer.uid() != own && peer.uid() != 0 {
        let why = format!("process of user {}, not {own}", peer.uid());
        let _ = connection.send(&ToWorker::Refused { why: why.clone() }, Vec::new());
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why).into());
    }
    let first = timeout(FIRST_MESSAGE, poll_fn(|cx| connection.poll_message(cx)))
        .await
        .map_err(|_| PeerError::TimedOut)??;
    let (process, for_store) = match first {
        FromWorker::Attach {
            local_rank,
            generation,
            ..
        } => (process(local_rank, generation), false),
        FromWorker::OpenStore {
            local_rank,
            generation,
        } => (process(local_rank, generation), true),
        FromWorker::AskCallKey => {
            connection.send(&ToWorker::CallKey { key: call_key }, Vec::new())?;
            return Ok(None);
        }
        _ => return Err(std::io::Error::other("its first message says not who it is").into()),
    };
    Ok(Some(Knock {
        process,
        for_store,
        pid: peer
            .pid()
            .and_then(|pid| u32::try_from(pid).ok())
            .filter(|pid| *pid > 0),
        connection,
    }))
}

fn process(local_rank: LocalRank, generation: Generation) -> Process {
    Process {
        local_rank,
        generation,
    }
}

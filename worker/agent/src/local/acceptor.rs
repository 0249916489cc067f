//! Accepts connections at the Unix socket and reads their first messages.

use std::{future::poll_fn, path::Path, sync::Arc, time::Duration};

use elasticrun_protocol::{
    CommitId, FromWorker, Generation, LocalRank, Process, ToWorker, control::BaseShards,
    local::WorkerIdentity,
};
use tokio::{
    net::UnixListener,
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};
use tracing::Instrument as _;

use super::Connection;
use crate::{Error, error::PeerError, inbox::InboxMessage};

/// The largest number of connections whose first message is pending.
const MAX_PENDING: usize = 256;

/// How long a process may take from its connect to its first message.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// The request of a process of our user to attach as a worker.
#[derive(Debug)]
pub(crate) struct AttachRequest {
    pub(crate) connection: Connection,
    /// The worker that the process claims to be.
    pub(crate) process: Process,
    /// The use of the connection.
    pub(crate) purpose: Purpose,
    /// The process id as the kernel reports it; none if it is of a pid namespace that we cannot see.
    pub(crate) pid: Option<u32>,
}

/// The use of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The process attaches as a worker.
    Attach {
        /// The number of buffers for commits that the worker can use.
        buffers: u8,
    },
    /// Store requests of a process that has attached over another connection.
    Store {
        /// The newest protocol version of the worker.
        version: u16,
    },
    /// A request for the shards of a commit, of a process that has attached over another connection.
    Shards {
        /// The commit.
        commit: CommitId,
        /// Its layout.
        shards: BaseShards,
    },
}

/// Opens the socket and passes attach requests to the inbox until the set is dropped. Processes may ask for `call_identity`.
pub(crate) fn open(
    path: &Path,
    call_identity: WorkerIdentity,
    inbox: mpsc::Sender<InboxMessage>,
    tasks: &mut JoinSet<()>,
) -> Result<(), Error> {
    // We hold the lock of the directory, so an existing socket is of an agent that was killed.
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).map_err(Error::system("listen at the workers' socket"))?;
    let accepting = async move {
        let permits = Arc::new(Semaphore::new(MAX_PENDING));
        let mut pending = JoinSet::new();
        let mut fails = false;
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    fails = false;
                    let (inbox, call_identity) = (inbox.clone(), call_identity.clone());
                    let first = async move {
                        let _permit = permit;
                        match read_first_message(Connection::new(stream), call_identity).await {
                            Ok(None) => {}
                            Ok(Some(request)) => {
                                // Fails only at the agent's own end.
                                let _ = inbox.send(InboxMessage::Attach(Box::new(request))).await;
                            }
                            Err(error) => {
                                tracing::warn!(%error, "a stranger at the workers' socket");
                            }
                        }
                    };
                    pending.spawn(first.in_current_span());
                }
                Err(error) => {
                    // Most likely the process is out of descriptors. Pause until others are closed.
                    let full = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
                    if full && !std::mem::replace(&mut fails, true) {
                        tracing::warn!(%error, "no worker can connect; raise the limit of open files (ulimit -n)");
                    } else {
                        tracing::debug!(%error, "cannot accept a worker");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            while pending.try_join_next().is_some() {}
        }
    };
    tasks.spawn(accepting.in_current_span());
    Ok(())
}

/// Reads the first message. None if it is a question, which is answered here.
async fn read_first_message(
    mut connection: Connection,
    call_identity: WorkerIdentity,
) -> Result<Option<AttachRequest>, PeerError> {
    let peer = connection.peer()?;
    // SAFETY: geteuid has no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    if peer.uid() != user && peer.uid() != 0 {
        let why = format!("process of user {}, not {user}", peer.uid());
        let _ = connection.send(&ToWorker::Refused { why: why.clone() }, Vec::new());
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why).into());
    }
    let first = timeout(
        FIRST_MESSAGE_TIMEOUT,
        poll_fn(|cx| connection.poll_message(cx)),
    )
    .await
    .map_err(|_| PeerError::TimedOut)??;
    let (process, purpose) = match first {
        FromWorker::Attach {
            local_rank,
            generation,
            buffers,
            ..
        } => (process(local_rank, generation), Purpose::Attach { buffers }),
        FromWorker::OpenStore {
            local_rank,
            generation,
            version,
        } => (process(local_rank, generation), Purpose::Store { version }),
        FromWorker::AskShards {
            local_rank,
            generation,
            commit,
            shards,
        } => (
            process(local_rank, generation),
            Purpose::Shards { commit, shards },
        ),
        FromWorker::AskCallIdentity => {
            let identity = call_identity;
            connection.send(&ToWorker::CallIdentity { identity }, Vec::new())?;
            return Ok(None);
        }
        _ => return Err(std::io::Error::other("its first message says not who it is").into()),
    };
    Ok(Some(AttachRequest {
        process,
        purpose,
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

//! A worker's connection to its agent, and the resources received from it.

use std::{net::TcpListener, os::unix::net::UnixStream, path::PathBuf, sync::Arc, time::Duration};

use elasticrun_core::worker::Announcement;
use elasticrun_protocol::{FromWorker, Round, auth::Bytes32, frame, local::WorkerIdentity};
use elasticrun_shm::{
    fds,
    page::{Phase, WorkerPage},
};
use elasticrun_tls::{ClientConfig, Role};

use super::Inbox;
use crate::{Error, memory::Memory, standalone};

/// A worker's connection to its agent. The training thread owns it.
#[derive(Debug)]
pub(crate) struct AgentConnection {
    pub(crate) transport: Transport,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) page: WorkerPage,
    pub(crate) memory: Memory,
    pub(crate) listener: TcpListener,
    /// Key of the data plane.
    pub(crate) key: Bytes32,
    /// How long a peer may take to answer at all.
    pub(crate) connect_timeout: Duration,
    /// Whether messages of the data plane are encrypted.
    pub(crate) encrypt: bool,
    /// The identity of this worker. None from an older agent.
    pub(crate) identity: Option<WorkerIdentity>,
}

/// The source of rounds.
#[derive(Debug)]
pub(crate) enum Transport {
    Agent {
        /// The connection on which this process has attached.
        stream: UnixStream,
        /// The path of the agent's socket, for further connections.
        socket: PathBuf,
    },
    /// No agent: this is a single process.
    Standalone,
}

impl AgentConnection {
    /// Announces that this process can be a member of a round. Includes the round that it has left,
    /// if any.
    pub(crate) fn announce(&self, announcement: Announcement) -> Result<(), Error> {
        self.page.set_phase(Phase::Waiting);
        let left = announcement.left;
        match &self.transport {
            Transport::Agent { stream, .. } => {
                let port = self.listener.local_addr();
                let join = FromWorker::Join {
                    left: left.map(|left| left.round),
                    told: left.is_none_or(|left| left.ordered),
                    data_port: port.map_err(Error::system("listen for peers"))?.port(),
                    commit: self.memory.newest(),
                    empty: self.memory.newest_is_empty(),
                    unreachable: announcement.unreachable,
                };
                // The agent's last message explains more than a broken pipe.
                let ended = || self.inbox.with_machine(|machine| machine.ended().cloned());
                send(stream, &join).map_err(|error| ended().map_or(error, Error::from))
            }
            Transport::Standalone => {
                self.inbox
                    .started(standalone::start(left.map(|left| left.round)));
                Ok(())
            }
        }
    }

    /// Reports that training is done.
    pub(crate) fn finish(&self, round: Round) {
        self.page.set_phase(Phase::Finished);
        if let Transport::Agent { stream, .. } = &self.transport
            && let Err(error) = send(stream, &FromWorker::Finished { round })
        {
            tracing::warn!(%error, "training is done, and the agent cannot be told");
        }
    }

    /// Reports that this process has failed.
    pub(crate) fn fail(&self) {
        if let Transport::Agent { stream, .. } = &self.transport
            && let Err(error) = send(stream, &FromWorker::Failed)
        {
            tracing::debug!(%error, "the agent will see the end of this process");
        }
    }

    /// What connects to agents of other hosts, and proves to them that this is a worker of the job.
    pub(crate) fn to_agents(&self) -> Result<ClientConfig, Error> {
        let Some(WorkerIdentity(text)) = &self.identity else {
            return Err(Error::Protocol {
                why: "the agent has no identity for this worker; install the same release on both"
                    .to_owned(),
            });
        };
        let identity = frame::decode(text.as_bytes()).map_err(|_| Error::Protocol {
            why: "the identity of this worker cannot be read".to_owned(),
        })?;
        ClientConfig::new(&identity, Role::Agent).map_err(|error| Error::Protocol {
            why: error.to_string(),
        })
    }
}

pub(super) fn send(stream: &UnixStream, message: &FromWorker) -> Result<(), Error> {
    let bytes = frame::to_frame(message).map_err(|error| Error::Protocol {
        why: error.to_string(),
    })?;
    fds::send_all(stream, &bytes, &[]).map_err(|error| Error::AgentLost {
        why: error.to_string(),
    })
}

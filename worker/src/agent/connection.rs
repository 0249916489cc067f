//! A worker's way to its agent, and what it got there.

use std::{
    net::TcpListener,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use elasticrun_core::worker::Announcement;
use elasticrun_protocol::{
    FromWorker, Round,
    auth::{Bytes32, Secret},
    frame,
};
use elasticrun_shm::{
    fds,
    page::{Phase, WorkerPage},
};

use super::{Inbox, attach::attach};
use crate::{Error, alone, memory::Memory};

/// See the module. The training thread's.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) line: Line,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) page: WorkerPage,
    pub(crate) memory: Memory,
    pub(crate) listener: TcpListener,
    /// Of the data plane.
    pub(crate) key: Bytes32,
    /// How long a peer may take to answer at all.
    pub(crate) connect_timeout: Duration,
}

/// Where rounds come from.
#[derive(Debug)]
pub(crate) enum Line {
    Agent(UnixStream),
    /// Nobody: this process is the world.
    Alone,
}

/// A process becomes a worker once. A forked child inherits this, and rightly.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Link {
    /// Attaches to the agent of this process, or finds that there is none.
    pub(crate) fn open() -> Result<Self, Error> {
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(Error::RunTwice);
        }
        match attach()? {
            Some(link) => Ok(link),
            None => {
                TAKEN.store(false, Ordering::SeqCst);
                alone::link()
            }
        }
    }

    /// Says that it can be a member of a round, having left one if it was in one.
    pub(crate) fn announce(&self, announcement: Announcement) -> Result<(), Error> {
        self.page.set_phase(Phase::Waiting);
        let left = announcement.left;
        match &self.line {
            Line::Agent(stream) => {
                let port = self.listener.local_addr();
                let join = FromWorker::Join {
                    left: left.map(|left| left.round),
                    told: left.is_none_or(|left| left.ordered),
                    data_port: port.map_err(Error::system("listen for peers"))?.port(),
                    commit: self.memory.newest(),
                    empty: self.memory.newest_is_empty(),
                    unreachable: announcement.unreachable,
                };
                // What the agent said before it went tells more than a broken pipe.
                let ended = || self.inbox.ask(|machine| machine.ended().cloned());
                say(stream, &join).map_err(|error| ended().map_or(error, Error::from))
            }
            Line::Alone => {
                self.inbox
                    .started(alone::start(left.map(|left| left.round)));
                Ok(())
            }
        }
    }

    /// Says that training is done.
    pub(crate) fn finish(&self, round: Round) {
        self.page.set_phase(Phase::Finished);
        if let Line::Agent(stream) = &self.line
            && let Err(error) = say(stream, &FromWorker::Finished { round })
        {
            tracing::warn!(%error, "training is done, and the agent cannot be told");
        }
    }

    /// Says that this process has failed.
    pub(crate) fn fail(&self) {
        if let Line::Agent(stream) = &self.line
            && let Err(error) = say(stream, &FromWorker::Failed)
        {
            tracing::debug!(%error, "the agent will see the end of this process");
        }
    }

    /// Proves to other agents of the job that this is one of its workers.
    pub(crate) fn secret(&self) -> Result<Secret, Error> {
        Secret::from_hex(&self.key.to_string()).ok_or_else(|| Error::Protocol {
            why: "the key of the data plane is none".to_owned(),
        })
    }
}

pub(super) fn say(stream: &UnixStream, message: &FromWorker) -> Result<(), Error> {
    let bytes = frame::to_frame(message).map_err(|error| Error::Protocol {
        why: error.to_string(),
    })?;
    fds::send_all(stream, &bytes, &[]).map_err(|error| Error::AgentLost {
        why: error.to_string(),
    })
}

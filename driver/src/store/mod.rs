//! The job's key-value store, on a thread of its own: however much workers ask of it, the run loop is as quick
//! to hear of a death.
//!
//! [`elasticrun_core::store::Store`] decides; [`hub`] is the loop around it; [`line`] one connection of an agent.
//! The run loop says which agents there are and when a round starts, and waits for nothing.

mod hub;
mod line;

use std::{io, net::TcpStream, thread};

use elasticrun_core::store::Limits;
use elasticrun_protocol::{DriverEpoch, HostId, Round, frame::FrameBuffer, store::StoreOf};
use tokio::sync::mpsc;

/// What the store is told by the rest of the driver.
#[derive(Debug)]
enum Note {
    /// An agent is part of the job now.
    AgentConnected { host: HostId, instance: u64 },
    /// An agent is not any more.
    AgentLost { host: HostId },
    /// Its workers will ask in this round from now on.
    RoundStarted { epoch: DriverEpoch, round: Round },
    /// An agent has opened a connection for requests.
    Opened(Box<Opened>),
}

#[derive(Debug)]
struct Opened {
    of: StoreOf,
    stream: TcpStream,
    /// What came already.
    frames: FrameBuffer,
}

/// Tells the store what it has to know. Cheap to clone; the store ends with the last one.
#[derive(Clone, Debug)]
pub struct Handle {
    notes: mpsc::UnboundedSender<Note>,
}

/// Starts the store's thread.
///
/// # Errors
/// What the system says when it has no thread or no descriptors.
pub fn start() -> io::Result<Handle> {
    // Unbounded for the run loop, which never waits: a few notes for each agent and round.
    let (notes, inbox) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    thread::Builder::new().name("store".into()).spawn(move || {
        runtime.block_on(hub::run(inbox, Limits::default()));
    })?;
    Ok(Handle { notes })
}

impl Handle {
    /// Requests of this agent are taken from now on. Say it before the agent can know its instance.
    pub fn agent_connected(&self, host: &HostId, instance: u64) {
        let host = host.clone();
        self.tell(Note::AgentConnected { host, instance });
    }

    /// Nothing that this host's agent says changes anything any more.
    pub fn agent_lost(&self, host: &HostId) {
        self.tell(Note::AgentLost { host: host.clone() });
    }

    /// Say it before any worker can know.
    pub fn round_started(&self, epoch: DriverEpoch, round: Round) {
        self.tell(Note::RoundStarted { epoch, round });
    }

    /// Hands over a connection that has proved itself.
    pub(crate) fn opened(&self, of: StoreOf, stream: TcpStream, frames: FrameBuffer) {
        self.tell(Note::Opened(Box::new(Opened { of, stream, frames })));
    }

    fn tell(&self, note: Note) {
        if self.notes.send(note).is_err() {
            tracing::error!("the store has ended before the job");
        }
    }
}

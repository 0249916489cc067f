//! The job's key-value store. It has its own thread, so that requests of workers do not delay the run loop.
//!
//! [`elasticrun_core::store::Store`] decides. [`server`] is the loop around it, and [`connection`] is one connection of an
//! agent. The run loop reports agents and starts of rounds, and never waits.

mod connection;
mod server;

use std::{io, net::TcpStream, thread};

use elasticrun_core::store::Limits;
use elasticrun_protocol::{DriverEpoch, HostId, Round, frame::FrameBuffer, store::StoreOf};
use elasticrun_tls::TlsStream;
use tokio::sync::mpsc;

/// An event of the driver that concerns the store.
#[derive(Debug)]
enum DriverEvent {
    /// An agent was admitted to the job.
    AgentConnected { host: HostId, instance: u64 },
    /// An agent was lost.
    AgentLost { host: HostId },
    /// Workers send requests of this round from now on.
    RoundStarted { epoch: DriverEpoch, round: Round },
    /// An agent has opened a connection for requests.
    ConnectionOpened(Box<OpenedConnection>),
}

#[derive(Debug)]
struct OpenedConnection {
    agent: StoreOf,
    stream: TlsStream<TcpStream>,
    /// Bytes that are read already.
    frames: FrameBuffer,
}

/// Sends events to the store. Cheap to clone. The store ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Handle {
    events: mpsc::UnboundedSender<DriverEvent>,
}

/// Starts the store's thread.
///
/// # Errors
/// The system has no thread or no descriptors left.
pub fn start() -> io::Result<Handle> {
    // Unbounded, since the run loop never waits: there are a few events for each agent and round.
    let (events, inbox) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    thread::Builder::new().name("store".into()).spawn(move || {
        runtime.block_on(server::run(inbox, Limits::default()));
    })?;
    Ok(Handle { events })
}

impl Handle {
    /// The store takes requests of this agent from now on. Call it before the agent can know its instance.
    pub fn agent_connected(&self, host: &HostId, instance: u64) {
        let host = host.clone();
        self.send(DriverEvent::AgentConnected { host, instance });
    }

    /// The store ignores this host's agent from now on.
    pub fn agent_lost(&self, host: &HostId) {
        self.send(DriverEvent::AgentLost { host: host.clone() });
    }

    /// A round starts. Call it before any worker can know.
    pub fn round_started(&self, epoch: DriverEpoch, round: Round) {
        self.send(DriverEvent::RoundStarted { epoch, round });
    }

    /// Passes an authenticated connection to the store.
    pub(crate) fn connection_opened(
        &self,
        agent: StoreOf,
        stream: TlsStream<TcpStream>,
        frames: FrameBuffer,
    ) {
        let opened = OpenedConnection {
            agent,
            stream,
            frames,
        };
        self.send(DriverEvent::ConnectionOpened(Box::new(opened)));
    }

    fn send(&self, event: DriverEvent) {
        if self.events.send(event).is_err() {
            tracing::error!("the store has ended before the job");
        }
    }
}

//! The control port: agents connect by mutual TLS, and then exchange frames. Hosts with a join token enrol there.
//!
//! Each agent has one task that reads and one that writes. Messages go to the [`Input`] channel of the run loop. A peer
//! proves itself on other threads ([`opening`]). One that proves nothing in time is dropped with one line in the log.
//!
//! None of these functions is cancel-safe. They run as tasks of a [`TaskTracker`] and end with it.

mod connection;
mod last_will;
mod opening;
mod output;
mod outputs;
mod refusals;
mod side_connections;

use std::{io, time::Duration};

use elasticrun_core::AgentConnected;
use elasticrun_protocol::{FromAgent, HostId};
use elasticrun_tls::TlsStream;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use crate::{clock::Clock, console::Console, store};
use connection::Peer;
pub use connection::Writer;
pub use opening::Access;
use opening::{First, Proved, Threads};
pub use outputs::Outputs;
pub use refusals::Refusals;
pub use side_connections::SideConnections;

/// Messages of agents to the run loop.
#[derive(Debug)]
pub enum Input {
    /// An agent has proved itself.
    Connected {
        /// Its registration.
        agent: AgentConnected,
        /// The release that it runs.
        software: String,
        /// The protocol version of its connection.
        version: u16,
        /// Takes its commands.
        writer: Writer,
    },
    /// Reports that came in one read.
    Reported {
        /// The host of the agent.
        host: HostId,
        /// The connection.
        instance: u64,
        /// The reports, in order.
        reports: Vec<FromAgent>,
    },
    /// The connection is gone.
    Lost {
        /// The host of the agent.
        host: HostId,
        /// The connection.
        instance: u64,
        /// The reason, for the operator.
        why: String,
    },
    /// An agent is dead, and none of its workers is left.
    Died {
        /// The host of the agent.
        host: HostId,
        /// The random number of the agent's process.
        agent: u64,
        /// The reason, for the operator.
        why: String,
    },
}

/// The context of all connections.
#[derive(Clone, Debug)]
pub struct Port {
    /// Who is let in.
    pub access: Access,
    /// Silence after which an agent is lost, by `clock`.
    pub silence: Duration,
    /// How long workers go on without the driver.
    pub orphan_timeout: Duration,
    /// How long a host without a connection may be away before it counts as lost.
    pub away_timeout: Duration,
    /// The driver's time.
    pub clock: Clock,
    /// Takes control messages.
    pub control: mpsc::Sender<Input>,
    /// Takes output of workers. A slow reader delays only the agents' output.
    pub output: Console,
    /// The pieces of output that were taken.
    pub outputs: Outputs,
    /// The connections of agents beside their control connections.
    pub side_connections: SideConnections,
    /// Takes connections to the key-value store.
    pub store: store::Handle,
    /// Ends the port.
    pub stop: CancellationToken,
    /// Tracks all tasks.
    pub tasks: TaskTracker,
}

/// Accepts agents until [`Port::stop`].
///
/// # Errors
/// The system has no descriptors left.
pub fn serve(listener: TcpListener, port: Port) -> io::Result<()> {
    let (access, stop) = (port.access.clone(), port.stop.clone());
    let (threads, mut proved) = Threads::start(listener.into_std()?, access, stop)?;
    let tasks = port.tasks.clone();
    let serves = async move {
        // They end with this task.
        let _threads = threads;
        // Peers that have begun before the end are served: they may have the last output of a worker.
        while let Some(agent) = proved.recv().await {
            let served = connected(agent, port.clone());
            port.tasks.spawn(served.in_current_span());
        }
    };
    tasks.spawn(serves.in_current_span());
    Ok(())
}

/// Serves the connection of an agent that has proved itself.
async fn connected(agent: Proved, port: Port) {
    let Proved {
        stream,
        frames,
        from,
        instance,
        first,
    } = agent;
    if let First::Store(of) = first {
        return port.store.connection_opened(of, stream, frames);
    }
    let stream = match of_this_runtime(stream) {
        Ok(stream) => stream,
        Err(error) => return tracing::warn!(peer = %from, %error, "cannot take a connection over"),
    };
    match first {
        First::Control(register, version) => {
            let peer = Peer {
                from,
                instance,
                version,
            };
            connection::serve(stream, frames, *register, peer, &port).await;
        }
        First::Output(sends) => {
            if let Err(error) = output::serve(stream, frames, sends, instance, &port).await {
                tracing::debug!(peer = %from, %error, "a connection for output ended");
            }
        }
        First::LastWill(of) => {
            if let Err(error) = last_will::serve(stream, frames, of, instance, &port).await {
                tracing::debug!(peer = %from, %error, "a connection for the death of an agent ended");
            }
        }
        First::Store(_) => {}
    }
}

fn of_this_runtime(stream: TlsStream<std::net::TcpStream>) -> io::Result<TlsStream<TcpStream>> {
    let (session, stream, unread) = stream.into_parts();
    Ok(TlsStream::new(
        session,
        TcpStream::from_std(stream)?,
        unread,
    ))
}

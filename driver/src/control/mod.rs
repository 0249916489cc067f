//! The control port: agents connect by mutual TLS, and then exchange frames. Hosts with a join token enrol there.
//!
//! Each agent has one task that reads and one that writes. Messages go to the [`Input`] channel of the run loop. A peer
//! that proves nothing within [`HANDSHAKE`] is dropped with one line in the log.
//!
//! None of these functions is cancel-safe. They run as tasks of a [`TaskTracker`] and end with it.

mod connection;
mod outputs;
mod refusals;

use std::{net::SocketAddr, time::Duration};

use elasticrun_core::AgentConnected;
use elasticrun_protocol::{FromAgent, HostId};
use elasticrun_tls::{Handshakes, ServerConfig};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use crate::{clock::Clock, console::Console, store, trust::Trust};
pub use connection::Writer;
pub use outputs::Outputs;
pub use refusals::Refusals;

/// How long a peer may take to prove itself.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long an agent may take to read its last commands once its connection is closed.
const LINGER: Duration = Duration::from_secs(5);

/// How long an agent keeps output that its driver does not take (`AgentOptions::output_timeout`).
const AGENT_KEEPS_OUTPUT: Duration = Duration::from_secs(10);

/// How many peers may be in their handshake at once. Silent ones give way.
const MAX_HANDSHAKES: usize = 1024;

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
}

/// The context of all connections.
#[derive(Clone, Debug)]
pub struct Port {
    /// Whose connections are accepted.
    pub tls: ServerConfig,
    /// Issues the credentials of hosts that enrol.
    pub trust: Trust,
    /// The id of the run. Agents that reconnect name it.
    pub run_id: String,
    /// Silence after which an agent is lost, by `clock`.
    pub silence: Duration,
    /// How long workers go on without the driver.
    pub orphan_timeout: Duration,
    /// The driver's time.
    pub clock: Clock,
    /// Takes control messages.
    pub control: mpsc::Sender<Input>,
    /// Takes output of workers. A slow reader delays only the agents' output.
    pub output: Console,
    /// The connections for output.
    pub outputs: Outputs,
    /// The log lines of refused peers.
    pub refusals: Refusals,
    /// Takes connections to the key-value store.
    pub store: store::Handle,
    /// Ends the port.
    pub stop: CancellationToken,
    /// Tracks all tasks.
    pub tasks: TaskTracker,
}

/// Accepts agents until [`Port::stop`].
pub async fn serve(listener: TcpListener, port: Port) {
    let mut handshakes = Handshakes::new(MAX_HANDSHAKES);
    let mut instance = 0;
    let mut fails = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = port.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                fails = false;
                instance += 1;
                // A socket of both families gives addresses of IPv4 as those of IPv6.
                let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                let handshake = tokio::select! {
                    handshake = handshakes.begin() => handshake,
                    () = port.stop.cancelled() => return,
                };
                let served = connection::run(stream, from, instance, port.clone(), handshake);
                port.tasks.spawn(served.in_current_span());
            }
            Err(error) => {
                // Most likely out of descriptors. Existing connections continue.
                let full = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
                if full && !std::mem::replace(&mut fails, true) {
                    tracing::warn!(%error, "no agent can connect; raise the limit of open files (ulimit -n)");
                } else {
                    tracing::debug!(%error, "cannot accept a connection");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

//! The control port: agents dial in, prove themselves, and then speak frames.
//!
//! One task reads and one writes for each agent; all that comes is folded into the [`Input`] channel of
//! the run loop. Whoever does not prove the job's secret within [`HANDSHAKE`] is dropped with one line in
//! the log and has read nothing but a challenge.
//!
//! Cancel-safety: none of these functions is; they run as tasks of a [`TaskTracker`] and end with it.

mod connection;
mod handshake;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use elasticrun_core::AgentConnected;
use elasticrun_protocol::{FromAgent, HostId, auth::Secret, control::Output};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{clock::Clock, store};
pub use connection::Writer;

/// How long a stranger may take to prove itself.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Strangers that may be at the port at once.
const STRANGERS: usize = 1024;

/// What agents say, as the run loop gets it.
#[derive(Debug)]
pub enum Input {
    /// An agent has proved itself.
    Connected {
        /// What it says of itself.
        agent: AgentConnected,
        /// The release it runs.
        software: String,
        /// Where to send its orders.
        writer: Writer,
    },
    /// Reports that came in one read.
    Reported {
        /// Whose.
        host: HostId,
        /// Over which connection.
        instance: u64,
        /// In order.
        reports: Vec<FromAgent>,
    },
    /// The connection is gone.
    Lost {
        /// Whose.
        host: HostId,
        /// Which connection.
        instance: u64,
        /// For a person.
        why: String,
    },
}

/// Lines of a worker, as the console gets them.
#[derive(Debug)]
pub struct Lines {
    /// Of which host.
    pub host: HostId,
    /// The lines.
    pub output: Output,
}

/// What every connection needs.
#[derive(Clone, Debug)]
pub struct Port {
    /// The job's secret.
    pub secret: Secret,
    /// The run, as agents know it that come back to it.
    pub run_id: String,
    /// Silence after which an agent is lost, by the clock below.
    pub silence: Duration,
    /// The driver's time.
    pub clock: Clock,
    /// Where control messages go.
    pub control: mpsc::Sender<Input>,
    /// Where lines of workers go; a full one holds up only the agents' output.
    pub output: mpsc::Sender<Lines>,
    /// Where requests of workers to the key-value store go.
    pub store: store::Handle,
    /// Ends everything.
    pub stop: CancellationToken,
    /// Knows every task.
    pub tasks: TaskTracker,
}

/// Accepts agents until [`Port::stop`].
pub async fn serve(listener: TcpListener, port: Port) {
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    let mut instance = 0;
    loop {
        let Ok(room) = strangers.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = port.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                instance += 1;
                port.tasks
                    .spawn(connection::run(stream, from, instance, port.clone(), room));
            }
            Err(error) => {
                // Out of descriptors, most likely: the connections that are there go on.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// How a peer is named in the log before it has said who it is.
fn stranger(from: SocketAddr, error: &handshake::Error) {
    tracing::warn!(peer = %from, %error, "refused a connection to the control port");
}

//! The opening of connections: what a peer does to prove itself, up to its first message.
//!
//! It has threads of its own. A handshake costs about a millisecond of arithmetic, and a thousand agents that connect at once
//! must not delay what the run loop does for the others.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream},
    thread,
    time::Duration,
};

use elasticrun_protocol::{
    HostId,
    control::{LastWillOf, OutputOf, Register},
    frame::FrameBuffer,
    opening::Purpose,
    store::StoreOf,
};
use elasticrun_tls::{
    Error as TlsError, Handshake, Handshakes, ServerConfig, TlsStream, enrol,
    opening::{self, Accepted, Connection},
};
use serde::de::DeserializeOwned;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{self, Runtime},
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::Refusals;
use crate::trust::Trust;

/// How long a peer may take to prove itself, and how long for its first message.
const LIMIT: Duration = Duration::from_secs(10);

/// How many peers may be in their handshake at once. Silent ones give way.
const MAX_HANDSHAKES: usize = 1024;

/// More threads than this would only compete with the run loop.
const MAX_THREADS: usize = 4;

/// Peers that have proved themselves and that the run loop has not seen.
const PROVED: usize = 256;

/// How long TCP may wait for an acknowledgement. Missing heartbeats end the connection of an agent long before.
const TCP_TIMEOUT: Duration = Duration::from_secs(120);

/// What the control port serves.
const SERVES: [Purpose; 4] = [
    Purpose::Control,
    Purpose::Output,
    Purpose::Store,
    Purpose::LastWill,
];

/// Why a peer was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Its connection was not opened.
    #[error(transparent)]
    Opening(#[from] opening::Error),
    /// It has no join token of this job.
    #[error(transparent)]
    Enrolment(#[from] enrol::Error),
    /// It names a host that is not the one of its certificate.
    #[error("it registers as host {host}, and has the certificate of another one")]
    OtherHost {
        /// The host that it names.
        host: HostId,
    },
}

impl Error {
    /// Whether the peer does not trust this driver, as an agent does that has the keys of an earlier job.
    pub(super) fn is_refusal_of_peer(&self) -> bool {
        matches!(
            self,
            Self::Opening(opening::Error::Tls(TlsError::Refused(_)))
        )
    }

    /// Whether nobody was refused: the peer has gone away, as an agent does that ends while it dials.
    pub(super) fn is_reset(&self) -> bool {
        matches!(self, Self::Opening(error) if error.is_reset())
    }
}

/// Who is let in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Access {
    /// Whose connections are accepted.
    pub tls: ServerConfig,
    /// Issues the credentials of hosts that enrol.
    pub trust: Trust,
    /// The id of the run, which the certificate of each host names.
    pub run_id: String,
    /// The log lines of refused peers.
    pub refusals: Refusals,
}

/// A connection of an agent that has proved itself.
#[derive(Debug)]
pub(super) struct Proved {
    pub(super) stream: TlsStream<StdStream>,
    /// What came after the first message.
    pub(super) frames: FrameBuffer,
    pub(super) from: SocketAddr,
    /// The number of the connection.
    pub(super) instance: u64,
    pub(super) first: First,
}

/// What the agent said first.
#[derive(Debug)]
pub(super) enum First {
    /// It registers, with this version of the protocol.
    Control(Box<Register>, u16),
    /// It sends output of its workers.
    Output(OutputOf),
    /// It passes requests to the store.
    Store(StoreOf),
    /// It will report the death of an agent.
    LastWill(LastWillOf),
}

/// The threads on which connections open. They end with it, whatever peers do.
#[derive(Debug)]
pub(super) struct Threads(Option<Runtime>);

impl Threads {
    /// Accepts peers at `listener` until `stop`, and gives those that prove themselves, also those that have begun before.
    ///
    /// # Errors
    /// The system has no descriptors left.
    ///
    /// # Panics
    /// The system has no threads left.
    pub(super) fn start(
        listener: StdListener,
        access: Access,
        stop: CancellationToken,
    ) -> io::Result<(Self, mpsc::Receiver<Proved>)> {
        let threads =
            thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("handshakes")
            .enable_io()
            .enable_time()
            .build()?;
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let (sender, proved) = mpsc::channel(PROVED);
        runtime.spawn(accept(listener, access, sender, stop).in_current_span());
        drop(entered);
        Ok((Self(Some(runtime)), proved))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(
    listener: TcpListener,
    access: Access,
    proved: mpsc::Sender<Proved>,
    stop: CancellationToken,
) {
    let mut handshakes = Handshakes::new(MAX_HANDSHAKES);
    let mut instance = 0;
    let mut fails = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                fails = false;
                instance += 1;
                // A socket of both families gives addresses of IPv4 as those of IPv6.
                let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                let handshake = tokio::select! {
                    handshake = handshakes.begin() => handshake,
                    () = stop.cancelled() => return,
                };
                let (access, proved) = (access.clone(), proved.clone());
                let proves = async move {
                    if let Some(peer) = prove(stream, from, instance, &access, handshake).await {
                        // Fails only at the end of the driver.
                        let _ = proved.send(peer).await;
                    }
                };
                tokio::spawn(proves.in_current_span());
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

/// What a peer does to prove itself. Holds `handshake` meanwhile. `None` if it is refused, or has enrolled.
async fn prove(
    stream: TcpStream,
    from: SocketAddr,
    instance: u64,
    access: &Access,
    handshake: Handshake,
) -> Option<Proved> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot switch off Nagle's algorithm");
    }
    if let Err(error) = elasticrun_agent::tune_control(&stream, TCP_TIMEOUT) {
        tracing::debug!(%error, "a connection is as it is");
    }
    let opened = async {
        let Some(mut connection) = open(stream, from, access).await? else {
            return Ok(None);
        };
        // What it says first may be long. No stranger takes its place.
        handshake.proved();
        let first = timeout(LIMIT, first_message(&mut connection, access))
            .await
            .unwrap_or(Err(opening::Error::TimedOut.into()))?;
        Ok(Some((connection, first)))
    };
    // One that gives way to others has taken too long.
    let opened = (handshake.run(opened).await).unwrap_or(Err(opening::Error::TimedOut.into()));
    let (connection, first) = match opened {
        Ok(opened) => opened?,
        Err(error) => {
            access.refusals.log(from, &error);
            return None;
        }
    };
    // Another runtime takes the socket over.
    let (session, stream, unread) = connection.stream.into_parts();
    let stream = stream
        .into_std()
        .inspect_err(|error| tracing::warn!(peer = %from, %error, "cannot take a connection over"));
    Some(Proved {
        stream: TlsStream::new(session, stream.ok()?, unread),
        frames: connection.frames,
        from,
        instance,
        first,
    })
}

/// Opens the connection of a peer. A host that proves a join token gets credentials, and connects again with them: `None`.
async fn open(
    stream: TcpStream,
    from: SocketAddr,
    access: &Access,
) -> Result<Option<Connection<TcpStream>>, Error> {
    let deadline = Instant::now() + LIMIT;
    let left = || deadline.saturating_duration_since(Instant::now());
    let stream = match opening::accept(stream, &access.tls, &SERVES, left()).await? {
        Accepted::Opened(connection) => return Ok(Some(connection)),
        Accepted::Enrolling(stream) => stream,
    };
    let find = |id| access.trust.find_token(id);
    let issue = |host: String| async move { access.trust.issue(&host) };
    let host = enrol::grant(stream, left(), find, issue).await?;
    tracing::debug!(peer = %from, host, "a host has proved its join token");
    Ok(None)
}

/// Reads the first message of a peer, which names its host.
async fn first_message(
    connection: &mut Connection<TcpStream>,
    access: &Access,
) -> Result<First, Error> {
    let version = connection.opened.version;
    Ok(match connection.opened.purpose {
        Purpose::Control => {
            let register = introduced(connection, access, |first: &Register| &first.host).await?;
            First::Control(Box::new(register), version)
        }
        Purpose::Output => {
            First::Output(introduced(connection, access, |first: &OutputOf| &first.host).await?)
        }
        Purpose::LastWill => {
            First::LastWill(introduced(connection, access, |first: &LastWillOf| &first.host).await?)
        }
        // No other purpose is served.
        Purpose::Store | Purpose::Memory | Purpose::Rendezvous => {
            First::Store(introduced(connection, access, |first: &StoreOf| &first.host).await?)
        }
    })
}

/// Reads a message that names a host, which must be the one of the peer's certificate.
async fn introduced<T: DeserializeOwned>(
    connection: &mut Connection<TcpStream>,
    access: &Access,
    host: impl Fn(&T) -> &HostId,
) -> Result<T, Error> {
    let message = opening::read(&mut connection.stream, &mut connection.frames).await?;
    let host = host(&message);
    match (connection.stream.session()).peer_is_on(&access.run_id, host.as_str()) {
        true => Ok(message),
        false => Err(Error::OtherHost { host: host.clone() }),
    }
}

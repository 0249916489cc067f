//! Connecting to the driver: candidate addresses in turn, with backoff, up to a deadline.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use elasticrun_protocol::{
    AgentCommand, DriverEpoch, HostId, ToAgent,
    control::{Adoption, Register, Setup},
    frame::FrameBuffer,
    opening::Purpose,
};
use elasticrun_tls::{
    Error as TlsError, TlsStream, enrol,
    opening::{self, Connection},
};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    AgentOptions, Error,
    clock::Clock,
    error::PeerError,
    keys::{Keyring, Keys},
    process::node_slots,
};

/// How long one address may take to resolve, and to accept a connection.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit of the opening of a connection.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// How often an agent that a user has started says that it cannot reach the driver.
const WARN_INTERVAL: Duration = Duration::from_secs(30);

/// An authenticated connection to the driver, and what it needs to become a control connection.
#[derive(Debug)]
pub(crate) struct Reached {
    connection: Connection<TcpStream>,
    candidate: String,
    /// The keys of the driver's job.
    pub(crate) keys: Arc<Keys>,
    /// The driver's address, for further connections.
    pub(crate) driver: SocketAddr,
    /// The local address of the route to the driver.
    pub(crate) local: IpAddr,
}

/// What an agent registers with, beside its options.
#[derive(Debug)]
pub(crate) struct Registration {
    /// The address at which other hosts reach this one.
    pub(crate) address: IpAddr,
    pub(crate) memory_port: u16,
    pub(crate) free_port: u16,
    /// The run of which commits are kept, if the agent has no workers.
    pub(crate) keeps_run: Option<String>,
    /// What the agent has kept, if it returns with workers.
    pub(crate) adoption: Option<Box<Adoption>>,
}

/// The control connection after the driver has sent the setup of the run.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) frames: FrameBuffer,
    pub(crate) epoch: DriverEpoch,
    /// The protocol version that both sides speak.
    pub(crate) version: u16,
    pub(crate) setup: Setup,
    /// Started when the registration was sent.
    pub(crate) clock: Clock,
}

/// Tries all addresses until the driver of the job answers.
///
/// Retries refused connections and timeouts until the deadline. Does not retry a failed authentication. An agent that joins
/// by itself warns after the first turn without success, and then every [`WARN_INTERVAL`].
pub(crate) async fn reach(
    options: &AgentOptions,
    host: &HostId,
    keyring: &mut Keyring,
    deadline: Instant,
) -> Result<Reached, Error> {
    let mut backoff = FIRST_BACKOFF;
    let mut warns = options.self_registered.then(Instant::now);
    loop {
        let mut tried = Vec::new();
        let mut refused = None;
        for candidate in options.drivers() {
            match reach_one(&candidate, host, keyring).await {
                Ok(reached) => return Ok(reached),
                Err(PeerError::Untrusted(source)) => {
                    refused.get_or_insert(Error::Handshake {
                        address: candidate.clone(),
                        source,
                    });
                }
                Err(error) => {
                    tracing::debug!(address = %candidate, %error, "cannot reach the driver there");
                    tried.push(format!("{candidate}: {error}"));
                }
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        if Instant::now() + backoff >= deadline {
            return Err(Error::Unreachable {
                within: options.connect_timeout,
                tried: tried.join("; "),
            });
        }
        if warns.is_some_and(|due| due <= Instant::now()) {
            warns = Some(Instant::now() + WARN_INTERVAL);
            let tried = tried.join("; ");
            let within = options.connect_timeout;
            tracing::warn!(?within, %tried, "cannot reach the driver yet; retrying");
        }
        sleep_until(Instant::now() + backoff).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

/// Tries one address of the driver.
pub(crate) async fn reach_one(
    candidate: &str,
    host: &HostId,
    keyring: &mut Keyring,
) -> Result<Reached, PeerError> {
    let addresses = timeout(ADDRESS_TIMEOUT, lookup_host(candidate))
        .await
        .unwrap_or_else(|_| Err(std::io::Error::other("its name is not resolved in time")))?;
    let mut last = PeerError::TimedOut;
    for address in addresses {
        match dial_control(address, host, keyring).await {
            Ok((connection, keys)) => {
                return Ok(Reached {
                    driver: address,
                    local: connection
                        .stream
                        .get_ref()
                        .local_addr()?
                        .ip()
                        .to_canonical(),
                    candidate: candidate.to_owned(),
                    connection,
                    keys,
                });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Opens a control connection. An agent with a join token enrols first, unless its keys are those of the driver's job.
async fn dial_control(
    address: SocketAddr,
    host: &HostId,
    keyring: &mut Keyring,
) -> Result<(Connection<TcpStream>, Arc<Keys>), PeerError> {
    if let Some(keys) = &keyring.keys {
        match dial(address, keys, Purpose::Control).await {
            Err(error) if is_other_job(&error) && keyring.token.is_some() => {}
            dialled => return Ok((dialled?, keys.clone())),
        }
    }
    let Some(token) = &keyring.token else {
        return Err(enrol::Error::Opening(TlsError::NoCertificate.into()).into());
    };
    let token = token.read()?;
    let stream = connect(address).await?;
    let credentials = enrol::ask(stream, &token, host.as_str(), HANDSHAKE_TIMEOUT).await?;
    let keys = Arc::new(Keys::new(&credentials)?);
    keyring.keys = Some(keys.clone());
    Ok((dial(address, &keys, Purpose::Control).await?, keys))
}

/// Whether a driver of another job has answered.
pub(crate) fn is_other_job(error: &PeerError) -> bool {
    matches!(
        error,
        PeerError::Untrusted(enrol::Error::Opening(opening::Error::Tls(
            TlsError::OtherJob
        )))
    )
}

/// Opens a connection to the driver.
pub(crate) async fn dial(
    address: SocketAddr,
    keys: &Keys,
    purpose: Purpose,
) -> Result<Connection<TcpStream>, PeerError> {
    let stream = connect(address).await?;
    Ok(opening::dial(stream, &keys.to_driver, purpose, HANDSHAKE_TIMEOUT).await?)
}

async fn connect(address: SocketAddr) -> Result<TcpStream, PeerError> {
    let stream = timeout(ADDRESS_TIMEOUT, TcpStream::connect(address))
        .await
        .map_err(|_| PeerError::TimedOut)??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Reached {
    /// Registers the host and waits for the setup of the run.
    pub(crate) async fn join(
        self,
        options: &AgentOptions,
        host: &HostId,
        registration: Registration,
    ) -> Result<Joined, Error> {
        let Registration {
            address,
            memory_port,
            free_port,
            keeps_run,
            adoption,
        } = registration;
        let register = Register {
            host: host.clone(),
            software: env!("CARGO_PKG_VERSION").into(),
            slots: options.slots,
            detected_slots: options.detected_slots,
            self_registered: options.self_registered,
            memory_port,
            free_port,
            address: (address != self.local).then_some(address),
            task: options.task.clone(),
            keeps_run,
            probes: true,
            durable: true,
            replicas: true,
            cuts: true,
            servers: true,
            agent: Some(process_number()?),
            adoption,
        };
        let candidate = self.candidate;
        let Connection {
            mut stream,
            mut frames,
            opened,
        } = self.connection;
        let clock = Clock::start();
        let joined = async {
            opening::write(&mut stream, &register).await?;
            Ok(opening::read::<ToAgent>(&mut stream, &mut frames).await?)
        };
        let lost = |error: PeerError| Error::Unreachable {
            within: options.connect_timeout,
            tried: format!("{candidate}: registered, then {error}"),
        };
        let first = match timeout(HANDSHAKE_TIMEOUT, joined).await {
            Err(_) => return Err(lost(PeerError::TimedOut)),
            Ok(Err(PeerError::Frame(_))) => return Err(Error::NoSetup { address: candidate }),
            Ok(Err(error)) => return Err(lost(error)),
            Ok(Ok(first)) => first,
        };
        match first.command {
            AgentCommand::Setup(setup)
                if options.self_registered
                    && let Some(expected) = node_slots(&setup)
                    && expected.get() != options.slots =>
            {
                Err(Error::OtherSlots {
                    offered: options.slots,
                    expected: expected.get(),
                })
            }
            AgentCommand::Setup(setup) => Ok(Joined {
                stream,
                frames,
                epoch: first.epoch,
                version: opened.version,
                setup: *setup,
                clock,
            }),
            AgentCommand::NameTaken { by } => Err(Error::NameTaken {
                host: host.clone(),
                by,
            }),
            _ => Err(Error::NoSetup { address: candidate }),
        }
    }
}

/// The random number of this process. Two machines may have the same name, but not the same number.
pub(crate) fn process_number() -> Result<u64, Error> {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    if let Some(number) = NUMBER.get() {
        return Ok(*number);
    }
    let random = getrandom::u64().map_err(|error| Error::System {
        what: "get random bytes",
        source: std::io::Error::other(error),
    })?;
    Ok(*NUMBER.get_or_init(|| random))
}

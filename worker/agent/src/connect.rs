//! Reaching the driver: candidates in turn, with back-off, up to a deadline.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use elasticrun_protocol::{
    DriverEpoch, HostId, Order, ToAgent,
    auth::Purpose,
    control::{Register, Setup},
    frame::FrameBuffer,
};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, sleep_until, timeout},
};

use crate::{AgentOptions, Error, clock::Clock, error::PeerError, wire};

/// How long one address may take to answer at all.
const ONE_ADDRESS: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A connection to the driver that has just been proved, and what it needs to become a control connection.
#[derive(Debug)]
pub(crate) struct Reached {
    stream: TcpStream,
    frames: FrameBuffer,
    candidate: String,
    /// The driver's address, for further connections.
    pub(crate) driver: SocketAddr,
    /// The local end: the address of the route to the driver.
    pub(crate) local: IpAddr,
}

/// The control connection once the driver has said what the run is.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) stream: TcpStream,
    pub(crate) frames: FrameBuffer,
    pub(crate) epoch: DriverEpoch,
    pub(crate) setup: Setup,
    /// It began when the registration was sent.
    pub(crate) clock: Clock,
}

/// Tries all addresses until one answers as our driver does.
///
/// Refused connections and silence are tried again until the deadline; a driver that refuses us is not.
pub(crate) async fn reach(options: &AgentOptions, deadline: Instant) -> Result<Reached, Error> {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut tried = Vec::new();
        let mut refused = None;
        for candidate in &options.driver {
            match reach_one(candidate, options).await {
                Ok(reached) => return Ok(reached),
                Err(PeerError::Auth(source)) => {
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
        if Instant::now() + pause >= deadline {
            return Err(Error::Unreachable {
                within: options.connect_timeout,
                tried: tried.join("; "),
            });
        }
        sleep_until(Instant::now() + pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn reach_one(candidate: &str, options: &AgentOptions) -> Result<Reached, PeerError> {
    let addresses = timeout(ONE_ADDRESS, lookup_host(candidate))
        .await
        .unwrap_or_else(|_| Err(std::io::Error::other("its name is not resolved in time")))?;
    let mut last = PeerError::TimedOut;
    for address in addresses {
        match dial(address, options, Purpose::Control).await {
            Ok((stream, frames)) => {
                return Ok(Reached {
                    driver: address,
                    local: stream.local_addr()?.ip().to_canonical(),
                    candidate: candidate.to_owned(),
                    stream,
                    frames,
                });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// One authenticated connection to the driver.
pub(crate) async fn dial(
    address: SocketAddr,
    options: &AgentOptions,
    purpose: Purpose,
) -> Result<(TcpStream, FrameBuffer), PeerError> {
    let mut stream = timeout(ONE_ADDRESS, TcpStream::connect(address))
        .await
        .map_err(|_| PeerError::TimedOut)??;
    let frames = wire::dial(&mut stream, &options.secret, purpose).await?;
    Ok((stream, frames))
}

impl Reached {
    /// Registers the host and waits for the settings of the run.
    pub(crate) async fn join(
        mut self,
        options: &AgentOptions,
        host: &HostId,
        address: IpAddr,
        memory_port: u16,
        free_port: u16,
        keeps_run: Option<String>,
    ) -> Result<Joined, Error> {
        let register = Register {
            host: host.clone(),
            software: env!("CARGO_PKG_VERSION").into(),
            slots: options.slots,
            counted: options.counted,
            itself: options.itself,
            memory_port,
            free_port,
            address: (address != self.local).then_some(address),
            task: options.task.clone(),
            keeps_run,
            probes: true,
        };
        let candidate = self.candidate;
        let clock = Clock::start();
        let joined = async {
            wire::write(&mut self.stream, &register).await?;
            wire::read::<ToAgent>(&mut self.stream, &mut self.frames).await
        };
        let lost = |error: PeerError| Error::Unreachable {
            within: options.connect_timeout,
            tried: format!("{candidate}: registered, then {error}"),
        };
        let first = match timeout(wire::HANDSHAKE, joined).await {
            Err(_) => return Err(lost(PeerError::TimedOut)),
            Ok(Err(PeerError::Frame(_))) => return Err(Error::NoSetup { address: candidate }),
            Ok(Err(error)) => return Err(lost(error)),
            Ok(Ok(first)) => first,
        };
        match first.order {
            Order::Setup(setup) => Ok(Joined {
                stream: self.stream,
                frames: self.frames,
                epoch: first.epoch,
                setup: *setup,
                clock,
            }),
            _ => Err(Error::NoSetup { address: candidate }),
        }
    }
}

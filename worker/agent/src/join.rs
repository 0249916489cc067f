//! Joining a run: reach the driver, take the lock of the host, register.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use elasticrun_core::lease::Lease;
use elasticrun_protocol::HostId;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    AgentOptions, Error,
    connect::{self, Registration, reach},
    interfaces::{Interface, LocalInterfaces},
    keys::{Keyring, Keys},
    memory::KeptCommits,
    memory_port::{self, Served},
    passing_on::PassingOn,
    ports::Ports,
    run_dir::{self, RunDir},
    socket::tune_control,
};

/// The pause before a registration is repeated that got no answer.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The state of an agent that has joined a run.
pub(crate) struct JoinedRun {
    pub(crate) joined: connect::Joined,
    pub(crate) keys: Arc<Keys>,
    pub(crate) dir: RunDir,
    pub(crate) driver: SocketAddr,
    pub(crate) listen: IpAddr,
    /// The address and the port at which other hosts reach the commits of this one.
    pub(crate) memory_address: (IpAddr, u16),
    /// What the port of the commits passes on.
    pub(crate) passing_on: PassingOn,
    pub(crate) interface: Option<Interface>,
    pub(crate) tasks: JoinSet<()>,
}

/// Reaches the driver, takes the lock and registers. If the run is known, the agent takes the lock first, so that the
/// driver never counts on an agent that waits for another one to end.
pub(crate) async fn join(
    options: &AgentOptions,
    host: &HostId,
    keyring: &mut Keyring,
    run_id: &mut Option<String>,
    kept: &mut KeptCommits,
    ports: &mut Ports,
) -> Result<JoinedRun, Error> {
    let deadline = Instant::now() + options.connect_timeout;
    let root = run_dir::root()?;
    run_dir::remove_stale(&root);
    let mut said = None;
    loop {
        let mut dir = match &run_id {
            Some(run_id) => Some(RunDir::lock(&root, run_id, host).await?),
            None => None,
        };
        let reached = reach(options, host, keyring, deadline).await?;
        let (driver, keys) = (reached.driver, reached.keys.clone());
        let interface = chosen_interface(options, reached.local)?;
        let address = reachable_at(options, interface.as_ref(), reached.local);
        let listen = listen_at(options, address).await;
        let mut tasks = JoinSet::new();
        let served = Served {
            registry: kept.registry.clone(),
            passing_on: PassingOn::new(keys.clone()),
        };
        let memory_port =
            memory_port::open(listen, keys.clone(), served.clone(), &mut tasks).await?;
        let keeps_run = run_id.clone().filter(|_| !kept.is_empty());
        let registration = Registration {
            address,
            memory_port,
            free_port: coordinator_port(ports),
            keeps_run,
            adoption: None,
        };
        let joined = match reached.join(options, host, registration).await {
            // The network or a busy driver may cause this, or this machine was gone for a moment and its former agent is
            // not known to be lost. Retry until the deadline.
            Err(error @ (Error::Unreachable { .. } | Error::NameTaken { .. }))
                if Instant::now() < deadline =>
            {
                let text = error.to_string();
                if said.as_ref() != Some(&text) {
                    tracing::warn!("{text}; trying again");
                    said = Some(text);
                }
                sleep(RETRY_INTERVAL).await;
                continue;
            }
            joined => joined?,
        };
        let known = run_id.as_ref() == Some(&joined.setup.run_id);
        if !known {
            // Commits of another run are of no use in this one.
            kept.clear();
            dir = RunDir::try_lock(&root, &joined.setup.run_id, host)?;
            *run_id = Some(joined.setup.run_id.clone());
        }
        // The lock is taken. Begin anew: close the connection, then wait for the lock.
        let Some(mut dir) = dir else { continue };
        let setup = &joined.setup;
        let peer_timeout = Lease::from_setup(setup).peer_timeout(setup.keep_timeout);
        if let Err(error) = tune_control(joined.stream.get_ref(), peer_timeout) {
            tracing::debug!(%error, "the connection to the driver is as it is");
        }
        if let Err(error) = dir.announce(joined.setup.orphan_timeout) {
            tracing::warn!(%error, "cannot write to the lock");
        }
        return Ok(JoinedRun {
            joined,
            keys,
            dir,
            driver,
            listen,
            memory_address: (address, memory_port),
            passing_on: served.passing_on,
            interface,
            tasks,
        });
    }
}

/// A port for the coordinator. 0 if none is free, since the job may need none.
pub(crate) fn coordinator_port(ports: &mut Ports) -> u16 {
    ports.next().unwrap_or_else(|error| {
        tracing::warn!(%error, "no free port is found for a coordinator");
        0
    })
}

/// The interface that the user has chosen, unless an address is given.
fn chosen_interface(options: &AgentOptions, control: IpAddr) -> Result<Option<Interface>, Error> {
    if options.listen.is_some() || options.network_interfaces.is_empty() {
        return Ok(None);
    }
    let here = LocalInterfaces::list().map_err(Error::system("list the network interfaces"))?;
    here.find(&options.network_interfaces, control).map(Some)
}

/// The address at which other hosts reach this one: as configured, else that of the route to the driver.
fn reachable_at(options: &AgentOptions, interface: Option<&Interface>, control: IpAddr) -> IpAddr {
    let chosen = interface.map(|interface| interface.address);
    options.listen.or(chosen).unwrap_or(control)
}

/// The address to listen at for other hosts. An agent that reaches the driver by loopback is on the driver's machine. It
/// listens at all addresses, since the driver tells hosts of other machines an address that they reach.
async fn listen_at(options: &AgentOptions, reachable: IpAddr) -> IpAddr {
    let chosen = options.listen.is_some() || !options.network_interfaces.is_empty();
    if chosen || options.local_only || !reachable.is_loopback() {
        return reachable;
    }
    let all = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    match TcpListener::bind((all, 0)).await {
        Ok(_) => all,
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

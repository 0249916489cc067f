//! The life of an agent: reach the driver, take the lock, join, serve; again, if it came by itself.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::unix::ffi::OsStringExt,
    time::Duration,
};

use elasticrun_core::{
    Time,
    agent::{End, Machine},
};
use elasticrun_protocol::{HostId, auth::Bytes32, store::StoreOf};
use elasticrun_termination_notice::{Notices, Sources};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    AgentOptions, Error,
    agent::{Agent, Deaths},
    connect::{self, reach},
    discard::Discard,
    execute::data_secret,
    guard::Guard,
    leftovers::{self, Marked},
    link::DriverLink,
    local,
    memory::{Kept, Memories},
    memory_port,
    output::Output,
    ports::Ports,
    probe::Prober,
    process::Starter,
    rundir::{self, RunDir},
    scheduling,
    socket::tune_control,
    store::Store,
};

/// Why an agent ended in good order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The driver told it to.
    ShutDown,
    /// A signal told it to.
    Stopped,
    /// The driver was lost and did not come back in time; its workers were ended.
    Orphaned,
    /// What it was started under is gone ([`AgentOptions::abandoned`]); its workers were killed.
    Abandoned,
}

/// How long killed descendants may take to go at the agent's end.
const LAST_DEATHS: Duration = Duration::from_secs(5);

/// Between two registrations, of which the first got no answer.
const AGAIN: Duration = Duration::from_millis(500);

/// Notes of tasks and threads that may wait for the loop.
const INBOX: usize = 256;

/// Serves one host of a run until the driver or SIGTERM ends it, or the driver is lost.
///
/// Call it once in a process, on a current-thread runtime of tokio with all drivers enabled. It changes the
/// process: SIGTERM and SIGINT are handled, orphans of its workers become its children. Not cancel-safe:
/// workers of an agent that is dropped end with its process only.
///
/// # Errors
/// See [`Error`]; no worker is left behind.
pub async fn run(options: AgentOptions) -> Result<Ended, Error> {
    scheduling::react_quickly();
    leftovers::adopt().map_err(Error::system("become the reaper of orphans"))?;
    let mut signals = Signals::new()?;
    let host = match &options.host {
        Some(host) => host.clone(),
        None => HostId::new(machine_name()?),
    };
    let mut run_id = options.run_id.clone();
    let mut kept = Kept::default();
    let mut session = options.clone();
    let mut again = false;
    loop {
        let ended = match serve(&session, &host, &mut run_id, &mut signals, &mut kept).await {
            Err(error) if again => {
                tracing::debug!(%error, "the driver is gone");
                return Ok(Ended::Orphaned);
            }
            ended => ended?,
        };
        if ended != Ended::Orphaned || options.task.is_some() {
            return Ok(ended);
        }
        if options.itself {
            tracing::info!("the driver is gone; waiting for the next one");
        } else if kept.is_empty() {
            return Ok(ended);
        } else {
            // The driver may only have been out of reach, and no other host may hold what is kept here. A driver that is
            // gone refuses at once.
            again = true;
            session.connect_timeout = Duration::ZERO;
        }
    }
}

/// SIGTERM ends the agent; SIGINT is for the driver, which tells us what it wants.
struct Signals {
    terminate: Option<Signal>,
    _interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::system("handle signals"));
        Ok(Self {
            terminate: Some(listen(SignalKind::terminate())?),
            _interrupt: listen(SignalKind::interrupt())?,
        })
    }

    fn take_terminate(&mut self) -> Result<Signal, Error> {
        match self.terminate.take() {
            Some(signal) => Ok(signal),
            None => signal(SignalKind::terminate()).map_err(Error::system("handle signals")),
        }
    }
}

/// One run, from its first connection to its end.
async fn serve(
    options: &AgentOptions,
    host: &HostId,
    run_id: &mut Option<String>,
    signals: &mut Signals,
    kept: &mut Kept,
) -> Result<Ended, Error> {
    let mut terminate = signals.take_terminate()?;
    let mut ports = Ports::new();
    let joined = tokio::select! {
        joined = join(options, host, run_id, kept, &mut ports) => joined?,
        _ = terminate.recv() => return Ok(Ended::Stopped),
        () = options.abandoned.cancelled() => return Ok(Ended::Abandoned),
    };
    let Ready {
        joined,
        dir,
        driver,
        listen,
        mut tasks,
    } = joined;
    if !dir.is_fresh() {
        // Of an agent of this run and host that was killed, and its guard with it.
        let left = Marked::new(&dir.socket()).end_all();
        if left > 0 {
            tracing::warn!(left, "ended processes of an agent that is gone");
        }
    }
    let guard = Guard::start(&dir.socket()).map_err(Error::system("fork a guard"))?;
    let (notes, inbox) = mpsc::channel(INBOX);
    let call_key = options.secret.call_key(&joined.setup.run_id);
    let call_key = Bytes32(*call_key.expose());
    local::open(&dir.socket(), call_key, notes.clone(), &mut tasks)?;
    let clock = joined.clock;
    let discard = Discard::start()?;
    let store_of = StoreOf {
        host: host.clone(),
        instance: joined.setup.instance,
    };
    let setup = joined.setup;
    let notices = Notices::listen(Sources {
        file: setup.notice_file.clone().map(Into::into),
    });
    let mut machine = Machine::new(
        clock.now(),
        joined.epoch,
        setup.clone(),
        coordinator(&mut ports),
    );
    machine.registered(Time::ZERO);
    machine.keep(kept.processes());
    let mut agent = Agent {
        machine,
        host: host.clone(),
        setup,
        secret: options.secret.clone(),
        listen,
        ports,
        dir,
        link: Some(DriverLink::new(joined.stream, joined.frames, joined.epoch)),
        memories: Memories::new(std::mem::take(kept), discard.clone(), clock),
        discard,
        processes: Default::default(),
        region: None,
        starter: Starter::new(notes.clone())?,
        prober: Prober::new(notes.clone()),
        output: Output::start(options.clone(), driver, host.clone(), notes)?,
        store: Store::start(options.clone(), driver, store_of)?,
        deaths: Deaths::new(),
        inbox,
        notices,
        terminate,
        own: Default::default(),
        clock,
        last_sweep: tokio::time::Instant::now(),
        end: None,
        was_abandoned: false,
        abandoned: Box::pin(options.abandoned.clone().cancelled_owned()),
        done: false,
    };
    tracing::info!(%host, run_id = agent.setup.run_id, %driver, "joined");
    agent.run().await;
    let ended = match agent.end {
        _ if agent.was_abandoned => Ended::Abandoned,
        Some(End::ShutDown) => Ended::ShutDown,
        Some(End::Stopped) => Ended::Stopped,
        Some(End::Orphaned) | None => Ended::Orphaned,
    };
    let left = leftovers::end_descendants(Some(guard.pid()), LAST_DEATHS);
    if left > 0 {
        tracing::error!(
            left,
            "processes that the kernel does not let go stay behind"
        );
    }
    if agent.end == Some(End::ShutDown) {
        agent.notices.host_left().await;
    }
    agent.output.finish().await;
    tasks.shutdown().await;
    guard.dismiss();
    drop(agent.dir);
    drop(agent.link);
    *kept = agent.memories.into_kept();
    Ok(ended)
}

/// What an agent has once it is part of a run.
struct Ready {
    joined: connect::Joined,
    dir: RunDir,
    driver: std::net::SocketAddr,
    listen: IpAddr,
    tasks: JoinSet<()>,
}

/// The lock before the registration, whenever the name of the run is known: so that a driver never counts on
/// an agent that waits for another one to end.
async fn join(
    options: &AgentOptions,
    host: &HostId,
    run_id: &mut Option<String>,
    kept: &mut Kept,
    ports: &mut Ports,
) -> Result<Ready, Error> {
    let deadline = Instant::now() + options.connect_timeout;
    let root = rundir::root()?;
    rundir::remove_stale(&root);
    loop {
        let mut dir = match &run_id {
            Some(run_id) => Some(RunDir::lock(&root, run_id, host).await?),
            None => None,
        };
        let reached = reach(options, deadline).await?;
        let driver = reached.driver;
        let address = reachable_at(options, reached.local)?;
        let listen = listen_at(options, address).await;
        let mut tasks = JoinSet::new();
        // Workers fetch commits there, and know no other secret.
        let secret = data_secret(&options.secret);
        let memory_port = memory_port::open(listen, secret, kept.shelf.clone(), &mut tasks).await?;
        let keeps_run = run_id.clone().filter(|_| !kept.is_empty());
        let joined = match reached
            .join(
                options,
                host,
                address,
                memory_port,
                coordinator(ports),
                keeps_run,
            )
            .await
        {
            // The network, or a driver with a thousand others at its port: only the time to connect is a limit.
            Err(error @ Error::Unreachable { .. }) if Instant::now() < deadline => {
                tracing::warn!(%error, "trying again");
                sleep(AGAIN).await;
                continue;
            }
            joined => joined?,
        };
        let known = run_id.as_ref() == Some(&joined.setup.run_id);
        if !known {
            // Commits of another run are none of this one.
            kept.clear();
            dir = RunDir::try_lock(&root, &joined.setup.run_id, host)?;
            *run_id = Some(joined.setup.run_id.clone());
        }
        // Not free: begin anew, and wait for it without a driver that counts on us.
        let Some(mut dir) = dir else { continue };
        let setup = &joined.setup;
        let gone = setup.heartbeat_timeout + setup.orphan_timeout + setup.keep_timeout;
        if let Err(error) = tune_control(&joined.stream, gone) {
            tracing::debug!(%error, "the connection to the driver is as it is");
        }
        if let Err(error) = dir.announce(joined.setup.orphan_timeout) {
            tracing::warn!(%error, "cannot write to the lock");
        }
        return Ok(Ready {
            joined,
            dir,
            driver,
            listen,
            tasks,
        });
    }
}

/// A port for the coordinator, and 0 if there is none: the job may need none.
fn coordinator(ports: &mut Ports) -> u16 {
    ports.next().unwrap_or_else(|error| {
        tracing::warn!(%error, "no free port is found for a coordinator");
        0
    })
}

/// Where other hosts reach this one: as the user says, else by the route to the driver.
fn reachable_at(options: &AgentOptions, control: IpAddr) -> Result<IpAddr, Error> {
    match (&options.listen, &options.network_interface) {
        (Some(address), _) => Ok(*address),
        (None, None) => Ok(control),
        (None, Some(name)) => interface_address(name, control),
    }
}

/// Where to listen for other hosts. Who knows itself by a loopback address only is on the driver's machine, and the
/// driver names to each host of another machine the address that it reaches.
async fn listen_at(options: &AgentOptions, reachable: IpAddr) -> IpAddr {
    let chosen = options.listen.is_some() || options.network_interface.is_some();
    if chosen || options.local_only || !reachable.is_loopback() {
        return reachable;
    }
    let all = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    match TcpListener::bind((all, 0)).await {
        Ok(_) => all,
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// The first address of an interface that is of the same family as the route to the driver.
fn interface_address(name: &str, like: IpAddr) -> Result<IpAddr, Error> {
    let none = || Error::Interface {
        name: name.to_owned(),
    };
    let all = nix::ifaddrs::getifaddrs().map_err(|error| Error::System {
        what: "list the network interfaces",
        source: error.into(),
    })?;
    all.filter(|interface| interface.interface_name == name)
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
        })
        .find(|address| address.is_ipv4() == like.is_ipv4())
        .ok_or_else(none)
}

fn machine_name() -> Result<String, Error> {
    let name = nix::unistd::gethostname().map_err(|error| Error::System {
        what: "ask for the name of this machine",
        source: error.into(),
    })?;
    let name = String::from_utf8(name.into_vec()).map_err(|_| Error::NoHostName)?;
    if name.is_empty() {
        return Err(Error::NoHostName);
    }
    Ok(name)
}

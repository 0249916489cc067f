//! The life cycle of an agent: take the lock, reach the driver, join, serve. A self-registered agent repeats it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::unix::ffi::OsStringExt,
    time::Duration,
};

use elasticrun_core::{
    Time,
    agent::{End, Machine},
    lease::Lease,
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
use tracing::Instrument as _;

use crate::{
    AgentOptions, Error,
    agent::{Agent, LivenessEvents},
    connect::{self, reach},
    deferred_free::DeferredFree,
    execute::data_secret,
    interfaces::{Interface, LocalInterfaces},
    link::DriverLink,
    local,
    memory::{KeptCommits, Memories},
    memory_port,
    orphans::{self, MarkedProcesses},
    output::Output,
    ports::Ports,
    probe::Prober,
    process::Starter,
    reaper_process::ReaperProcess,
    run_dir::{self, RunDir},
    scheduling,
    socket::tune_control,
    spans::Spans,
    store::Store,
};

/// Why an agent ended in good order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The driver ordered the end.
    ShutDown,
    /// A signal ordered the end.
    Stopped,
    /// The driver was lost and did not come back in time; the workers were ended.
    Orphaned,
    /// The process that the agent was started under is gone ([`AgentOptions::abandoned`]); the workers were killed.
    Abandoned,
}

/// How long killed descendants may take to end, at the agent's end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before a registration is repeated that got no answer.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Messages of tasks and threads that may wait for the loop.
const INBOX_CAPACITY: usize = 256;

/// Serves one host of a run until the driver or SIGTERM ends it, or the driver is lost.
///
/// Call it once in a process, on a current-thread runtime of tokio with all drivers enabled. It changes the process:
/// it handles SIGTERM and SIGINT, and orphans of the workers become its children. Not cancel-safe: if the future is
/// dropped, the workers end only with the process.
///
/// # Errors
/// See [`Error`]; no worker is left behind.
pub async fn run(mut options: AgentOptions) -> Result<Ended, Error> {
    scheduling::use_short_time_slices();
    orphans::become_subreaper().map_err(Error::system("become the reaper of orphans"))?;
    let mut signals = Signals::new()?;
    let host = match &options.host {
        Some(host) => host.clone(),
        None => HostId::new(machine_name()?),
    };
    let mut run_id = options.run_id.clone();
    let mut kept = KeptCommits::default();
    let mut is_retry = false;
    loop {
        let spans = Spans::new(options.run_id.as_deref(), &host);
        let in_host = spans.host();
        let served = serve(&options, &host, spans, &mut run_id, &mut signals, &mut kept);
        let ended = match served.instrument(in_host).await {
            Err(error) if is_retry => {
                tracing::debug!(%error, "the driver is gone");
                return Ok(Ended::Orphaned);
            }
            ended => ended?,
        };
        if ended != Ended::Orphaned || options.task.is_some() {
            return Ok(ended);
        }
        if options.self_registered {
            tracing::info!("the driver is gone; waiting for the next one");
        } else if kept.is_empty() {
            return Ok(ended);
        } else {
            // The driver may only have been out of reach, and the commits kept here may have no other copy. So try once
            // more; the address of a driver that is gone refuses at once.
            is_retry = true;
            options.connect_timeout = Duration::ZERO;
        }
    }
}

/// SIGTERM ends the agent. SIGINT is ignored: it is for the driver, which then sends commands.
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
    spans: Spans,
    run_id: &mut Option<String>,
    signals: &mut Signals,
    kept: &mut KeptCommits,
) -> Result<Ended, Error> {
    let mut terminate = signals.take_terminate()?;
    let mut ports = Ports::new();
    let joined = tokio::select! {
        joined = join(options, host, run_id, kept, &mut ports) => joined?,
        _ = terminate.recv() => return Ok(Ended::Stopped),
        () = options.abandoned.cancelled() => return Ok(Ended::Abandoned),
    };
    let JoinedRun {
        joined,
        dir,
        driver,
        listen,
        interface,
        mut tasks,
    } = joined;
    if options.run_id.is_none() {
        spans.set_run(&joined.setup.run_id);
    }
    if !dir.is_fresh() {
        // An agent of this run and host was killed together with its reaper process.
        let left = MarkedProcesses::new(&dir.socket()).kill_all();
        if left > 0 {
            tracing::warn!(left, "ended processes of an agent that is gone");
        }
    }
    let reaper = ReaperProcess::start(&dir.socket()).map_err(Error::system("fork a guard"))?;
    let (inbox_sender, inbox) = mpsc::channel(INBOX_CAPACITY);
    let call_key = options.secret.call_key(&joined.setup.run_id);
    let call_key = Bytes32(*call_key.expose());
    local::open(&dir.socket(), call_key, inbox_sender.clone(), &mut tasks)?;
    let clock = joined.clock;
    let deferred_free = DeferredFree::start()?;
    let store_of = StoreOf {
        host: host.clone(),
        instance: joined.setup.instance,
    };
    let setup = joined.setup;
    let notices = Notices::listen(Sources {
        file: setup.notice_file.clone().map(Into::into),
        signal_notice: options.signal_notice.or(setup.signal_notice),
    });
    let mut machine = Machine::new(
        clock.now(),
        joined.epoch,
        setup.clone(),
        coordinator_port(&mut ports),
    );
    machine.registered(Time::ZERO);
    machine.keep(kept.processes());
    let mut agent = Agent {
        machine,
        host: host.clone(),
        setup,
        secret: options.secret.clone(),
        listen,
        interface,
        ports,
        dir,
        span: spans.host(),
        spans,
        link: Some(DriverLink::new(joined.stream, joined.frames, joined.epoch)),
        memories: Memories::new(std::mem::take(kept), deferred_free.clone(), clock),
        deferred_free,
        processes: Default::default(),
        region: None,
        starter: Starter::new(inbox_sender.clone())?,
        prober: Prober::new(inbox_sender.clone()),
        output: Output::start(options.clone(), driver, host.clone(), inbox_sender)?,
        store: Store::start(options.clone(), driver, store_of)?,
        liveness: LivenessEvents::new(),
        inbox,
        notices,
        terminate,
        pending_events: Default::default(),
        clock,
        last_sweep: tokio::time::Instant::now(),
        end: None,
        was_abandoned: false,
        abandoned: Box::pin(options.abandoned.clone().cancelled_owned()),
        done: false,
    };
    tracing::info!(%driver, "joined");
    tracing::debug!(
        version = joined.version,
        "protocol version of the connection"
    );
    agent.run().await;
    let ended = match agent.end {
        _ if agent.was_abandoned => Ended::Abandoned,
        Some(End::ShutDown) => Ended::ShutDown,
        Some(End::Stopped) => Ended::Stopped,
        Some(End::Orphaned) | None => Ended::Orphaned,
    };
    let left = orphans::kill_descendants(Some(reaper.pid()), KILL_TIMEOUT);
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
    reaper.dismiss();
    drop(agent.dir);
    drop(agent.link);
    *kept = agent.memories.into_kept();
    Ok(ended)
}

/// The state of an agent that has joined a run.
struct JoinedRun {
    joined: connect::Joined,
    dir: RunDir,
    driver: std::net::SocketAddr,
    listen: IpAddr,
    interface: Option<Interface>,
    tasks: JoinSet<()>,
}

/// Reaches the driver, takes the lock and registers. If the run is known, the agent takes the lock first, so that the
/// driver never counts on an agent that waits for another one to end.
async fn join(
    options: &AgentOptions,
    host: &HostId,
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
        let reached = reach(options, deadline).await?;
        let driver = reached.driver;
        let interface = chosen_interface(options, reached.local)?;
        let address = reachable_at(options, interface.as_ref(), reached.local);
        let listen = listen_at(options, address).await;
        let mut tasks = JoinSet::new();
        // Workers fetch commits at this port, and have no other secret.
        let secret = data_secret(&options.secret);
        let memory_port =
            memory_port::open(listen, secret, kept.registry.clone(), &mut tasks).await?;
        let keeps_run = run_id.clone().filter(|_| !kept.is_empty());
        let joined = match reached
            .join(
                options,
                host,
                address,
                memory_port,
                coordinator_port(ports),
                keeps_run,
            )
            .await
        {
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
        if let Err(error) = tune_control(&joined.stream, peer_timeout) {
            tracing::debug!(%error, "the connection to the driver is as it is");
        }
        if let Err(error) = dir.announce(joined.setup.orphan_timeout) {
            tracing::warn!(%error, "cannot write to the lock");
        }
        return Ok(JoinedRun {
            joined,
            dir,
            driver,
            listen,
            interface,
            tasks,
        });
    }
}

/// A port for the coordinator. 0 if none is free, since the job may need none.
fn coordinator_port(ports: &mut Ports) -> u16 {
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

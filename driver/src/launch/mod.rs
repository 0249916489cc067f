//! Launchers: they start an agent on each host, by fork or by the system's ssh. The agent connects to the driver by itself.
//! From then on its connection counts, not the launch.
//!
//! The settings of the agent, including the job's secret, go to its standard input as one line. They are in no argument and
//! in no remote command line.

mod local;
mod program;
mod ssh;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    pin::pin,
    process::ExitStatus,
    time::Duration,
};

use elasticrun_agent::Launch;
use elasticrun_core::sources::Sources;
use elasticrun_plugin_sdk::{Host, hosts::HostSpec};
use elasticrun_protocol::{HostId, auth::Secret};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    sync::{mpsc, watch},
    time::timeout,
};
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, error_span};

use self::program::Program;
use crate::config::{self, launcher_of};

/// Lines of an agent's standard error that are kept to report why it ended.
const TAIL: usize = 5;

/// How long the agent of an abandoned launch may take to end by itself.
const ABANDON_GRACE: Duration = Duration::from_secs(3);

/// How long an agent may take to end with its job, before its launch is ended.
const JOB_END_GRACE: Duration = Duration::from_secs(8);

/// A launch has ended: the process of the agent, or of ssh, is gone.
#[derive(Debug)]
pub struct Ended {
    /// The host.
    pub(crate) host: HostId,
    /// Number of the launch.
    number: u64,
    /// The reason, for the operator.
    pub(crate) why: String,
}

/// A launch whose process has not ended.
#[derive(Debug)]
struct Running {
    number: u64,
    /// Its agent has connected.
    connected: bool,
    /// Ends the launch within a time.
    stop: watch::Sender<Option<Duration>>,
}

/// Starts agents.
#[derive(Debug)]
pub(crate) struct Launcher {
    settings: config::Launch,
    program: Program,
    secret: Secret,
    run_id: String,
    address: SocketAddr,
    /// The last launch of each host, unless it has ended.
    running: BTreeMap<HostId, Running>,
    /// Number of the last launch.
    launches: u64,
    /// Launches that have not ended, including replaced launches of a host.
    unended: usize,
    ended: mpsc::Sender<Ended>,
    tasks: TaskTracker,
}

impl Launcher {
    /// A launcher of agents that connect to the driver at `address`.
    pub(crate) fn new(
        settings: config::Launch,
        secret: Secret,
        run_id: String,
        address: SocketAddr,
        ended: mpsc::Sender<Ended>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            settings,
            program: Program::current(),
            secret,
            run_id,
            address,
            running: BTreeMap::new(),
            launches: 0,
            unended: 0,
            ended,
            tasks,
        }
    }

    /// Whether no launched process is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.unended == 0
    }

    /// Removes an ended launch. Returns whether it was the last launch of its host.
    pub(crate) fn ended(&mut self, ended: &Ended) -> bool {
        self.unended -= 1;
        let current = |running: &Running| running.number == ended.number;
        let is_current = self.running.get(&ended.host).is_some_and(current);
        if is_current {
            self.running.remove(&ended.host);
        }
        is_current
    }

    /// Notes that the agent of a host has connected.
    pub(crate) fn connected(&mut self, host: &HostId) {
        if let Some(running) = self.running.get_mut(host) {
            running.connected = true;
        }
    }

    /// Ends the launch of a host whose agent is not needed any more.
    pub(crate) fn abandon(&mut self, host: &HostId) {
        if let Some(running) = self.running.remove(host) {
            let grace = if running.connected {
                ABANDON_GRACE
            } else {
                Duration::ZERO
            };
            running.stop.send_replace(Some(grace));
        }
    }

    /// Ends the launch of a host, unless its agent has connected.
    pub(crate) fn abandon_unless_connected(&mut self, host: &HostId) {
        if self
            .running
            .get(host)
            .is_some_and(|running| !running.connected)
        {
            self.abandon(host);
        }
    }

    /// Ends all launches with the job. Connected agents end by their command first; all other launches end at once.
    pub(crate) fn end(&self) {
        for running in self.running.values() {
            let grace = if running.connected {
                JOB_END_GRACE
            } else {
                Duration::ZERO
            };
            running.stop.send_replace(Some(grace));
        }
    }

    /// Starts the agent of a host that sources have listed. [`Ended`] reports its end.
    pub(crate) fn launch(&mut self, id: &HostId, sources: &Sources) {
        let host = sources.host(id).cloned();
        let host = host.unwrap_or_else(|| Host::new(id.as_str()));
        let launcher = self.launcher_of(&host);
        if launcher == config::Launcher::Agent {
            return;
        }
        self.abandon(id);
        self.launches += 1;
        self.unended += 1;
        let (number, (stop, stopped)) = (self.launches, watch::channel(None));
        let running = Running {
            number,
            connected: false,
            stop,
        };
        self.running.insert(id.clone(), running);
        let launch = Launch {
            driver: Vec::new(),
            secret: self.secret.clone(),
            run_id: Some(self.run_id.clone()),
            host: id.clone(),
            slots: host.slots.unwrap_or(0),
            network_interface: self.settings.network_interfaces.first().cloned(),
            // The driver listens on loopback if no other host can join.
            local_only: self.address.ip().is_loopback(),
        };
        let plan = Plan {
            launcher,
            routes: self.routes(&host, sources.hosts(), launcher),
            port: self.address.port(),
            settings: self.settings.clone(),
            program: self.program.clone(),
            host,
        };
        let (host, ended) = (id.clone(), self.ended.clone());
        let span = error_span!("host", name = %host);
        let supervised = async move {
            let why = supervise(plan, launch, stopped).await;
            let _ = ended.send(Ended { host, number, why }).await;
        };
        self.tasks.spawn(supervised.instrument(span));
    }

    fn launcher_of(&self, host: &Host) -> config::Launcher {
        let spec = HostSpec {
            user: host.user.clone(),
            host: host.address.clone(),
            port: host.port,
            slots: host.slots,
        };
        launcher_of(self.settings.launcher, &spec)
    }

    /// Hosts on the route to which the agent finds the driver's address, best first.
    fn routes(&self, host: &Host, listed: &[Host], launcher: config::Launcher) -> Vec<String> {
        match launcher {
            // The route to any other host, so that other hosts reach the workers of this one.
            config::Launcher::Local => (listed.iter())
                .filter(|other| self.launcher_of(other) == config::Launcher::Ssh)
                .map(|other| other.address.clone())
                .collect(),
            _ => vec![host.address.clone()],
        }
    }
}

/// The input of a launch. Its task resolves names and reads files, since both may block.
struct Plan {
    launcher: config::Launcher,
    host: Host,
    settings: config::Launch,
    program: Program,
    routes: Vec<String>,
    port: u16,
}

impl Plan {
    /// The processes to start, and the driver's address for the agent. Blocks.
    fn prepare(self) -> std::io::Result<(Start, String)> {
        let start = match self.launcher {
            config::Launcher::Ssh => ssh::start(&self.settings, &self.program, &self.host)?,
            _ => Start {
                push: None,
                agent: local::command(&self.program),
            },
        };
        let local = self
            .routes
            .iter()
            .find_map(|host| local_address_on_route(host));
        let local = local.unwrap_or(Ipv4Addr::LOCALHOST.into());
        Ok((start, SocketAddr::new(local, self.port).to_string()))
    }
}

/// The address of this machine on the route to a host by name.
fn local_address_on_route(host: &str) -> Option<IpAddr> {
    use std::net::ToSocketAddrs;
    let target = (host, 9).to_socket_addrs().ok()?.next()?;
    local_address_toward(target.ip())
}

/// The address of this machine on the route to another one. Sends nothing: connecting a datagram socket only picks a route.
pub(crate) fn local_address_toward(to: IpAddr) -> Option<IpAddr> {
    let target = SocketAddr::new(to, 9);
    let any: SocketAddr = if target.is_ipv4() {
        "0.0.0.0:0".parse().ok()?
    } else {
        "[::]:0".parse().ok()?
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The processes of a launch.
pub(crate) struct Start {
    /// Copies this binary to the host first.
    push: Option<Push>,
    /// The agent.
    agent: Command,
}

/// A copy of this binary to a host.
pub(crate) struct Push {
    /// Receives the binary on its standard input.
    command: Command,
}

/// Runs a launch to its end. Returns why it ended.
async fn supervise(
    plan: Plan,
    mut launch: Launch,
    mut stop: watch::Receiver<Option<Duration>>,
) -> String {
    const STOPPED: &str = "its launch was ended";
    let prepared = tokio::task::spawn_blocking(|| plan.prepare());
    let start = match unless_stopped(&mut stop, prepared).await {
        None => return STOPPED.into(),
        Some(Ok(Ok((start, driver)))) => {
            launch.driver = vec![driver];
            start
        }
        Some(Ok(Err(error))) => return format!("cannot start its agent: {error}"),
        Some(Err(error)) => return format!("cannot start its agent: {error}"),
    };
    if let Some(push) = start.push {
        match unless_stopped(&mut stop, ssh::push(push)).await {
            None => return STOPPED.into(),
            Some(Ok(())) => {}
            Some(Err(why)) => return why,
        }
    }
    let mut command = start.agent;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return format!("cannot start {:?}: {error}", command.as_std().get_program()),
    };
    if let Err(error) = send_settings(&mut child, &launch).await {
        tracing::debug!(host = %launch.host, %error, "the agent did not take its settings");
    }
    let mut tail = Vec::new();
    let followed = unless_stopped(&mut stop, follow(&mut child, &launch.host, &mut tail)).await;
    match followed {
        None => {
            let _ = child.kill().await;
            STOPPED.into()
        }
        Some(Ok(status)) if tail.is_empty() => format!("its agent ended ({status})"),
        Some(Ok(_)) => tail.join("; "),
        Some(Err(error)) => format!("its agent cannot be followed: {error}"),
    }
}

/// Runs `work` to its end. After a request to stop, `work` has the requested time left; `None` if that was too short.
async fn unless_stopped<T>(
    stop: &mut watch::Receiver<Option<Duration>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let grace = tokio::select! {
        done = &mut work => return Some(done),
        grace = stop_requested(stop) => grace,
    };
    timeout(grace, work).await.ok()
}

/// Waits for a request to stop. Returns the time that is left. Cancel-safe.
async fn stop_requested(stop: &mut watch::Receiver<Option<Duration>>) -> Duration {
    match stop.wait_for(Option::is_some).await {
        Ok(grace) => (*grace).unwrap_or_default(),
        // The launcher requests a stop before it drops the sender, unless the driver ends.
        Err(_) => Duration::ZERO,
    }
}

/// Writes the settings to the agent's standard input, which stays open until the agent ends.
async fn send_settings(child: &mut Child, launch: &Launch) -> std::io::Result<()> {
    match &mut child.stdin {
        Some(stdin) => {
            stdin.write_all(launch.to_line().as_bytes()).await?;
            stdin.flush().await
        }
        None => Ok(()),
    }
}

/// Logs the agent's messages and waits for its end.
async fn follow(
    child: &mut Child,
    host: &HostId,
    tail: &mut Vec<String>,
) -> std::io::Result<ExitStatus> {
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            tracing::debug!(%host, agent = %line);
            let line = line.trim().trim_start_matches("elasticrun: ").to_owned();
            if !line.is_empty() {
                tail.push(line);
            }
            if tail.len() > TAIL {
                tail.remove(0);
            }
        }
    }
    child.wait().await
}

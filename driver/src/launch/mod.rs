//! Launchers: how an agent comes to its host. Once a host, by fork or by the system's ssh; the agent then
//! dials the driver by itself, and from there on its connection is the truth, not the launch.
//!
//! What the agent must know, the job's secret among it, goes to its standard input as one line: never by
//! argument, never in a remote command line.

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

use self::program::Program;
use crate::config::{self, launcher_of};

/// Lines of an agent's standard error that are kept to say why it ended.
const TAIL: usize = 5;

/// How long an agent that is not wanted any more may take to end by itself.
const ABANDONED: Duration = Duration::from_secs(3);

/// How long an agent may take to end with its job, before its launch is ended.
const WITH_THE_JOB: Duration = Duration::from_secs(8);

/// A launch has ended: the agent, or what was to start it, is gone.
#[derive(Debug)]
pub struct Ended {
    /// On which host.
    pub(crate) host: HostId,
    /// Which launch.
    number: u64,
    /// For a person.
    pub(crate) why: String,
}

/// A launch whose process has not ended.
#[derive(Debug)]
struct Running {
    number: u64,
    /// It has led to an agent.
    connected: bool,
    /// Tells it to end within a time.
    stop: watch::Sender<Option<Duration>>,
}

/// Starts agents. See the module.
#[derive(Debug)]
pub(crate) struct Launcher {
    settings: config::Launch,
    program: Program,
    secret: Secret,
    run_id: String,
    address: SocketAddr,
    /// The last launch of each host, unless it has ended.
    running: BTreeMap<HostId, Running>,
    /// Launches ever made.
    launches: u64,
    /// Launches that have not ended, those of a host that is launched anew among them.
    unended: usize,
    ended: mpsc::Sender<Ended>,
    tasks: TaskTracker,
}

impl Launcher {
    /// A launcher of agents that dial the driver, which listens at `address`.
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

    /// A launched process has ended. Gives whether it was the last launch of its host.
    pub(crate) fn ended(&mut self, ended: &Ended) -> bool {
        self.unended -= 1;
        let current = |running: &Running| running.number == ended.number;
        let is_current = self.running.get(&ended.host).is_some_and(current);
        if is_current {
            self.running.remove(&ended.host);
        }
        is_current
    }

    /// The agent of a host has connected.
    pub(crate) fn connected(&mut self, host: &HostId) {
        if let Some(running) = self.running.get_mut(host) {
            running.connected = true;
        }
    }

    /// The agent of a host is not wanted any more, or will not come: whatever is left of its launch ends.
    pub(crate) fn abandon(&mut self, host: &HostId) {
        if let Some(running) = self.running.remove(host) {
            let patience = if running.connected {
                ABANDONED
            } else {
                Duration::ZERO
            };
            running.stop.send_replace(Some(patience));
        }
    }

    /// Ends a launch that has not led to an agent.
    pub(crate) fn abandon_unless_connected(&mut self, host: &HostId) {
        if self
            .running
            .get(host)
            .is_some_and(|running| !running.connected)
        {
            self.abandon(host);
        }
    }

    /// The job is over: agents end by their order, and what has not led to an agent by now need not.
    pub(crate) fn end(&self) {
        for running in self.running.values() {
            let patience = if running.connected {
                WITH_THE_JOB
            } else {
                Duration::ZERO
            };
            running.stop.send_replace(Some(patience));
        }
    }

    /// Starts the agent of a host that sources have listed. How it ends is told by [`Ended`].
    pub(crate) fn launch(&mut self, id: &HostId, sources: &Sources) {
        let host = sources.host(id).cloned();
        let host = host.unwrap_or_else(|| Host::new(id.as_str()));
        let launcher = self.by(&host);
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
            // The driver listens there when no host can come from elsewhere.
            local_only: self.address.ip().is_loopback(),
        };
        let plan = Plan {
            launcher,
            toward: self.toward(&host, sources.hosts(), launcher),
            port: self.address.port(),
            settings: self.settings.clone(),
            program: self.program.clone(),
            host,
        };
        let (host, ended) = (id.clone(), self.ended.clone());
        self.tasks.spawn(async move {
            let why = supervise(plan, launch, stopped).await;
            let _ = ended.send(Ended { host, number, why }).await;
        });
    }

    fn by(&self, host: &Host) -> config::Launcher {
        let spec = HostSpec {
            user: host.user.clone(),
            host: host.address.clone(),
            port: host.port,
            slots: host.slots,
        };
        launcher_of(self.settings.launcher, &spec)
    }

    /// The hosts on whose route the driver's address is to be found, best first.
    fn toward(&self, host: &Host, listed: &[Host], launcher: config::Launcher) -> Vec<String> {
        match launcher {
            // By the route to any other host, so that other hosts reach this one's workers.
            config::Launcher::Local => (listed.iter())
                .filter(|other| self.by(other) == config::Launcher::Ssh)
                .map(|other| other.address.clone())
                .collect(),
            _ => vec![host.address.clone()],
        }
    }
}

/// What a launch needs to know. Names are resolved and files are read by its own task, which may wait for them.
struct Plan {
    launcher: config::Launcher,
    host: Host,
    settings: config::Launch,
    program: Program,
    toward: Vec<String>,
    port: u16,
}

impl Plan {
    /// What to start, and where its agent finds the driver. Blocks.
    fn prepare(self) -> std::io::Result<(Start, String)> {
        let start = match self.launcher {
            config::Launcher::Ssh => ssh::start(&self.settings, &self.program, &self.host)?,
            _ => Start {
                push: None,
                agent: local::command(&self.program),
            },
        };
        let own = self.toward.iter().find_map(|to| own_address_toward(to));
        let own = own.unwrap_or(Ipv4Addr::LOCALHOST.into());
        Ok((start, SocketAddr::new(own, self.port).to_string()))
    }
}

/// The address of this machine on the route to a host. Sends nothing: a datagram socket only picks a route.
fn own_address_toward(host: &str) -> Option<IpAddr> {
    use std::net::ToSocketAddrs;
    let target = (host, 9).to_socket_addrs().ok()?.next()?;
    own_address(target.ip())
}

/// The address of this machine on the route to another one.
pub(crate) fn own_address(to: IpAddr) -> Option<IpAddr> {
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

/// What a launch does.
pub(crate) struct Start {
    /// First of all this binary is copied there.
    push: Option<Push>,
    /// The agent.
    agent: Command,
}

/// A copy of this binary to a host.
pub(crate) struct Push {
    /// Takes the binary on its standard input.
    command: Command,
}

/// Runs a launch to its end and says why it ended.
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
    if let Err(error) = hand_over(&mut child, &launch).await {
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

/// Works until it is done, or until it is told to end within a time and that has passed.
async fn unless_stopped<T>(
    stop: &mut watch::Receiver<Option<Duration>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let patience = tokio::select! {
        done = &mut work => return Some(done),
        patience = told(stop) => patience,
    };
    timeout(patience, work).await.ok()
}

/// Waits until it is told to end; gives the time for that. Cancel-safe.
async fn told(stop: &mut watch::Receiver<Option<Duration>>) -> Duration {
    match stop.wait_for(Option::is_some).await {
        Ok(patience) => (*patience).unwrap_or_default(),
        // The launcher has let go of it only after telling, or is gone with the driver.
        Err(_) => Duration::ZERO,
    }
}

/// Writes the settings to the agent's standard input. It stays open as long as the child is followed.
async fn hand_over(child: &mut Child, launch: &Launch) -> std::io::Result<()> {
    match &mut child.stdin {
        Some(stdin) => {
            stdin.write_all(launch.to_line().as_bytes()).await?;
            stdin.flush().await
        }
        None => Ok(()),
    }
}

/// Passes the agent's own messages on and waits for its end.
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

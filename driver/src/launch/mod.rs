//! Launchers: how an agent comes to its host. Once a host, by fork or by the system's ssh; the agent then
//! dials the driver by itself, and from there on its connection is the truth, not the launch.
//!
//! What the agent must know, the job's secret among it, goes to its standard input as one line: never by
//! argument, never in a remote command line.

mod local;
mod ssh;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    process::ExitStatus,
};

use elasticrun_agent::Launch;
use elasticrun_plugin_sdk::{Host, hosts::HostSpec};
use elasticrun_protocol::{HostId, auth::Secret};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::config::{self, launcher_of};

/// Lines of an agent's standard error that are kept to say why it ended.
const TAIL: usize = 5;

/// A launch has ended: the agent, or what was to start it, is gone.
#[derive(Debug)]
pub struct Ended {
    /// On which host.
    pub host: HostId,
    /// For a person.
    pub why: String,
}

/// Starts agents. See the module.
#[derive(Debug)]
pub(crate) struct Launcher {
    settings: config::Launch,
    secret: Secret,
    run_id: String,
    port: u16,
    /// What discovery says of the hosts.
    hosts: BTreeMap<HostId, Host>,
    /// Launches whose process has not ended.
    running: BTreeSet<HostId>,
    ended: mpsc::Sender<Ended>,
    tasks: TaskTracker,
    /// Ends launches that have not led to an agent.
    pending: CancellationToken,
}

impl Launcher {
    /// A launcher of agents that dial the driver at `port`.
    pub(crate) fn new(
        settings: config::Launch,
        secret: Secret,
        run_id: String,
        port: u16,
        ended: mpsc::Sender<Ended>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            settings,
            secret,
            run_id,
            port,
            hosts: BTreeMap::new(),
            running: BTreeSet::new(),
            ended,
            tasks,
            pending: CancellationToken::new(),
        }
    }

    /// Learns addresses, users and ports.
    pub(crate) fn learn(&mut self, list: &[Host]) {
        for host in list {
            self.hosts.insert(HostId::new(&host.id), host.clone());
        }
    }

    /// Whether no launched process is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// A launched process has ended.
    pub(crate) fn ended(&mut self, host: &HostId) {
        self.running.remove(host);
    }

    /// The job is over: what has not led to an agent by now need not.
    pub(crate) fn cancel_pending(&self) {
        self.pending.cancel();
    }

    /// Starts the agent of a host. How it ends is told by [`Ended`].
    pub(crate) fn launch(&mut self, id: &HostId) {
        let host = self
            .hosts
            .get(id)
            .cloned()
            .unwrap_or_else(|| Host::new(id.as_str()));
        let launcher = self.by(&host);
        let command = match launcher {
            config::Launcher::Local => local::command().map(|agent| Start { push: None, agent }),
            config::Launcher::Ssh => ssh::start(&self.settings, &host),
            config::Launcher::Agent => return,
        };
        let launch = Launch {
            driver: self.addresses(&host, launcher),
            secret: self.secret.clone(),
            run_id: Some(self.run_id.clone()),
            host: id.clone(),
            slots: host.slots.unwrap_or(0),
            network_interface: self.settings.network_interfaces.first().cloned(),
        };
        self.running.insert(id.clone());
        let (host, ended, pending) = (id.clone(), self.ended.clone(), self.pending.clone());
        self.tasks.spawn(async move {
            let why = match command {
                Ok(start) => supervise(start, &launch, &host, pending).await,
                Err(error) => format!("cannot start its agent: {error}"),
            };
            let _ = ended.send(Ended { host, why }).await;
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

    /// Where an agent on this host may reach the driver, best first.
    fn addresses(&self, host: &Host, launcher: config::Launcher) -> Vec<String> {
        let mut others = self
            .hosts
            .values()
            .filter(|other| self.by(other) == config::Launcher::Ssh);
        let address = match launcher {
            // By the route to any other host, so that other hosts reach this one's workers.
            config::Launcher::Local => others.find_map(|other| own_address_toward(&other.address)),
            _ => own_address_toward(&host.address),
        };
        let mut addresses: Vec<IpAddr> = address.into_iter().collect();
        if addresses.is_empty() {
            addresses.push(Ipv4Addr::LOCALHOST.into());
        }
        addresses
            .into_iter()
            .map(|ip| SocketAddr::new(ip, self.port).to_string())
            .collect()
    }
}

/// The address of this machine on the route to a host. Sends nothing: a datagram socket only picks a route.
fn own_address_toward(host: &str) -> Option<IpAddr> {
    use std::net::ToSocketAddrs;
    let target = (host, 9).to_socket_addrs().ok()?.next()?;
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
    binary: PathBuf,
}

/// Runs a launch to its end and says why it ended.
async fn supervise(
    start: Start,
    launch: &Launch,
    host: &HostId,
    pending: CancellationToken,
) -> String {
    if let Some(push) = start.push
        && let Err(why) = ssh::push(push).await
    {
        return why;
    }
    let mut command = start.agent;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return format!("cannot start {:?}: {error}", command.as_std().get_program()),
    };
    if let Err(error) = hand_over(&mut child, launch).await {
        tracing::debug!(%host, %error, "the agent did not take its settings");
    }
    let mut tail = Vec::new();
    let status = tokio::select! {
        status = follow(&mut child, host, &mut tail) => status,
        () = pending.cancelled() => {
            // An agent that runs ends by its order; whatever only tries to start one is ended here.
            match tokio::time::timeout(std::time::Duration::from_secs(8), follow(&mut child, host, &mut tail)).await {
                Ok(status) => status,
                Err(_) => {
                    let _ = child.kill().await;
                    return "ended with the job".into();
                }
            }
        }
    };
    match status {
        Ok(status) if tail.is_empty() => format!("its agent ended ({status})"),
        Ok(_) => tail.join("; "),
        Err(error) => format!("its agent cannot be followed: {error}"),
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

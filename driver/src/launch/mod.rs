//! Launchers: they start an agent on each host, by fork or by the system's ssh. The agent connects to the driver by itself.
//! From then on its connection counts, not the launch.
//!
//! The settings of the agent, including the keys of its host, go to its standard input as one line. They are in no argument and
//! in no remote command line.

mod agent_log;
mod local;
mod processes;
mod program;
mod push;
mod reach;
mod ssh;
mod supervise;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use elasticrun_agent::Launch;
use elasticrun_core::sources::Sources;
use elasticrun_plugin_sdk::{Host, hosts::HostSpec};
use elasticrun_protocol::HostId;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

pub(crate) use self::{agent_log::AgentLog, reach::local_address_toward};
use self::{
    program::Program,
    push::PUSHES_AT_ONCE,
    supervise::{Plan, supervise},
};
use crate::{
    config::{self, launcher_of},
    trust::Trust,
};

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
    /// The turns of pushes.
    pushes: Arc<Semaphore>,
    trust: Trust,
    run_id: String,
    address: SocketAddr,
    /// The addresses of hosts that are reached by ssh, and the version of the list that has them.
    remote: (u64, Arc<[String]>),
    /// The last launch of each host, unless it has ended.
    running: BTreeMap<HostId, Running>,
    /// Number of the last launch.
    launches: u64,
    /// Launches that have not ended, including replaced launches of a host.
    unended: usize,
    ended: mpsc::Sender<Ended>,
    tasks: TaskTracker,
    log: AgentLog,
}

impl Launcher {
    /// A launcher of agents that connect to the driver, whose socket is bound to `address`.
    pub(crate) fn new(
        settings: config::Launch,
        trust: Trust,
        run_id: String,
        address: SocketAddr,
        ended: mpsc::Sender<Ended>,
        tasks: TaskTracker,
        log: AgentLog,
    ) -> Self {
        Self {
            settings,
            program: Program::current(),
            pushes: Arc::new(Semaphore::new(PUSHES_AT_ONCE)),
            trust,
            run_id,
            address,
            remote: (0, Arc::default()),
            running: BTreeMap::new(),
            launches: 0,
            unended: 0,
            ended,
            tasks,
            log,
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
        let (run_id, slots) = (self.run_id.clone(), host.slots.unwrap_or(0));
        let network_interfaces = self.settings.network_interfaces.clone();
        let log_level = self.log.level().name().into();
        // The driver listens on loopback if no other host can join.
        let local_only = self.address.ip().is_loopback();
        let named = id.clone();
        let launch = move |credentials| Launch {
            driver: Vec::new(),
            credentials,
            run_id: Some(run_id),
            host: named,
            slots,
            network_interface: network_interfaces.first().cloned(),
            network_interfaces,
            local_only,
            log_level: Some(log_level),
        };
        let plan = Plan {
            launcher,
            routes: self.routes(&host, sources, launcher),
            bound: self.address,
            settings: self.settings.clone(),
            program: self.program.clone(),
            pushes: self.pushes.clone(),
            log: self.log.clone(),
            host,
        };
        let (host, ended) = (id.clone(), self.ended.clone());
        let span = self.log.host(&host);
        let trust = self.trust.clone();
        let supervised = async move {
            let why = match trust.issue_elsewhere(host.to_string()).await {
                Ok(credentials) => supervise(plan, launch(credentials), stopped).await,
                Err(error) => error.to_string(),
            };
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
    fn routes(
        &mut self,
        host: &Host,
        sources: &Sources,
        launcher: config::Launcher,
    ) -> Arc<[String]> {
        if launcher != config::Launcher::Local {
            return [host.address.clone()].into();
        }
        // The route to any other host, so that other hosts reach the workers of this one.
        let (version, remote) = &self.remote;
        if *version == sources.version() {
            return remote.clone();
        }
        let other = |host: &&Host| self.launcher_of(host) == config::Launcher::Ssh;
        let remote = sources.hosts().iter().filter(other);
        let remote: Arc<[_]> = remote.map(|host| host.address.clone()).collect();
        self.remote = (sources.version(), remote.clone());
        remote
    }
}

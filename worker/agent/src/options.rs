//! The options of an agent, before it reaches a driver.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use elasticrun_protocol::{HostId, control::Task};
use elasticrun_tls::Credentials;
use tokio_util::sync::CancellationToken;

use crate::{JoinToken, Launch, redial::once};

/// How an agent gets the keys of its job.
#[derive(Clone, Debug)]
pub enum Access {
    /// The driver has issued them.
    Issued(Box<Credentials>),
    /// The driver issues them for a join token.
    Token(JoinToken),
}

/// How an agent finds its driver, and how it describes its host.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Addresses of the driver (`host:port`), tried in turn.
    pub driver: Vec<String>,
    /// A file with further addresses of the driver, one on each line. It may change, and is read for each turn.
    pub driver_file: Option<PathBuf>,
    /// What proves that the agent is one of the job.
    pub access: Access,
    /// The id of the host; by default the name of the machine.
    pub host: Option<HostId>,
    /// Slots that the host offers.
    pub slots: u32,
    /// Slots that were detected on the host, or given on its command line.
    pub detected_slots: Option<u32>,
    /// The agent registers itself, by a join token. It dials again after the loss of a driver, until it is stopped.
    pub self_registered: bool,
    /// The agent serves one run, and waits for no driver of another one.
    pub one_run: bool,
    /// The numbers of the signals that end the agent. Others keep their action, except that an agent which serves several runs
    /// ignores SIGINT.
    pub stop_signals: Vec<i32>,
    /// The run, if it is known before the driver is reached. With it the agent takes the lock before it dials.
    pub run_id: Option<String>,
    /// Interfaces for data between workers. The first one that this host has, with an address of the driver's family, gives
    /// the address that other hosts reach. Without any, it is that of the route to the driver.
    pub network_interfaces: Vec<String>,
    /// All hosts of the job are on this machine, for as long as it runs. Loopback suffices.
    pub local_only: bool,
    /// The address at which other hosts reach this one. It overrides the route and the interface.
    pub listen: Option<IpAddr>,
    /// The cluster task that this agent is, if any. Such an agent serves one driver and never dials another.
    pub task: Option<Task>,
    /// Cancelled when the process that this agent was started under is gone. The agent then closes its connections to
    /// the driver at once and kills its workers.
    pub abandoned: CancellationToken,
    /// How long the host stays after SIGUSR1. It overrides what the driver says.
    pub signal_notice: Option<Duration>,
    /// The total time to reach the driver.
    pub connect_timeout: Duration,
    /// How long a worker may block on its output while the driver reads none, and how long the agent waits at its end.
    /// After that output is dropped.
    pub output_timeout: Duration,
}

impl AgentOptions {
    /// The options of an agent that a launcher starts.
    pub fn launched(launch: Launch) -> Self {
        let mut network_interfaces = launch.network_interfaces;
        if network_interfaces.is_empty() {
            // A driver of an earlier release names one.
            network_interfaces.extend(launch.network_interface);
        }
        Self {
            driver: launch.driver,
            driver_file: None,
            access: Access::Issued(Box::new(launch.credentials)),
            host: Some(launch.host),
            slots: launch.slots,
            detected_slots: None,
            self_registered: false,
            one_run: false,
            stop_signals: vec![libc::SIGTERM],
            run_id: launch.run_id,
            network_interfaces,
            local_only: launch.local_only,
            listen: None,
            task: None,
            abandoned: CancellationToken::new(),
            signal_notice: None,
            connect_timeout: Duration::from_secs(30),
            output_timeout: Duration::from_secs(10),
        }
    }

    /// The options of an agent that registers itself.
    pub fn joining(
        driver: Vec<String>,
        token: JoinToken,
        slots: u32,
        host: Option<HostId>,
    ) -> Self {
        Self {
            driver,
            driver_file: None,
            access: Access::Token(token),
            host,
            slots,
            detected_slots: None,
            self_registered: true,
            one_run: false,
            stop_signals: vec![libc::SIGTERM],
            run_id: None,
            network_interfaces: Vec::new(),
            local_only: false,
            listen: None,
            task: None,
            abandoned: CancellationToken::new(),
            signal_notice: None,
            connect_timeout: Duration::from_secs(600),
            output_timeout: Duration::from_secs(10),
        }
    }

    /// The addresses of the driver now, newest first, each once.
    pub(crate) fn drivers(&self) -> Vec<String> {
        let newer = addresses_in(self.driver_file.as_deref());
        once(newer.chain(self.driver.clone()), &[])
    }
}

/// The addresses in a file. A file that cannot be read has none: it may be about to be replaced.
pub(crate) fn addresses_in(file: Option<&Path>) -> impl Iterator<Item = String> {
    let text = file.and_then(|file| fs::read_to_string(file).ok());
    let lines = text.unwrap_or_default();
    let lines: Vec<_> = lines.lines().map(str::trim).map(str::to_owned).collect();
    lines.into_iter().filter(|line| !line.is_empty())
}

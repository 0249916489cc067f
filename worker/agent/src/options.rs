//! What an agent is told before it knows a driver.

use std::{net::IpAddr, time::Duration};

use elasticrun_protocol::{HostId, auth::Secret, control::Task};
use tokio_util::sync::CancellationToken;

use crate::Launch;

/// How an agent finds its driver, and what it says of its host.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Addresses of the driver (`host:port`), tried in turn.
    pub driver: Vec<String>,
    /// The job's secret, or what the join token stands for.
    pub secret: Secret,
    /// The host it is started for; by itself it takes the name of the machine.
    pub host: Option<HostId>,
    /// Slots it offers.
    pub slots: u32,
    /// Slots that the host itself shows, or that were given there.
    pub counted: Option<u32>,
    /// It came by itself (join token): it dials again after the driver is lost, until it is told to end.
    pub itself: bool,
    /// The run, if it is known before the driver says so: then the lock is taken before the driver is dialled.
    pub run_id: Option<String>,
    /// At whose address other hosts reach this one; else that of the route to the driver.
    pub network_interface: Option<String>,
    /// All hosts of the job are on this machine for as long as it runs: loopback is enough.
    pub local_only: bool,
    /// The address at which other hosts reach this one, whatever the route and the interface.
    pub listen: Option<IpAddr>,
    /// What it is a task of, if a cluster started it as one. Then it serves one driver and never dials another.
    pub task: Option<Task>,
    /// What it was started under is gone: it leaves its driver at once and kills its workers.
    pub abandoned: CancellationToken,
    /// How long to try to reach the driver, in all.
    pub connect_timeout: Duration,
    /// How long a worker may be blocked since the driver takes no output; after that lines are dropped.
    pub output_patience: Duration,
}

impl AgentOptions {
    /// Those of an agent that a launcher starts.
    pub fn launched(launch: Launch) -> Self {
        Self {
            driver: launch.driver,
            secret: launch.secret,
            host: Some(launch.host),
            slots: launch.slots,
            counted: None,
            itself: false,
            run_id: launch.run_id,
            network_interface: launch.network_interface,
            local_only: launch.local_only,
            listen: None,
            task: None,
            abandoned: CancellationToken::new(),
            connect_timeout: Duration::from_secs(30),
            output_patience: Duration::from_secs(10),
        }
    }

    /// Those of an agent that registers itself; `secret` is what its join token stands for.
    pub fn joining(driver: String, secret: Secret, slots: u32, host: Option<HostId>) -> Self {
        Self {
            driver: vec![driver],
            secret,
            host,
            slots,
            counted: None,
            itself: true,
            run_id: None,
            network_interface: None,
            local_only: false,
            listen: None,
            task: None,
            abandoned: CancellationToken::new(),
            connect_timeout: Duration::from_secs(600),
            output_patience: Duration::from_secs(10),
        }
    }
}

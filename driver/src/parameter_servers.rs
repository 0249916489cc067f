//! The scheduler of a job's parameter servers (`--ps`): a process of its own beside the driver.
//!
//! ```text
//!   driver ---- starts ----> scheduler (elasticrun __ps-scheduler)
//!     |                          ^   registrations, barriers, heartbeats
//!     '--> agents ---- start ----+-- servers (DMLC_ROLE=server) and workers (DMLC_ROLE=worker)
//! ```
//! The scheduler outlives a driver that is killed, as agents and workers do, and a later driver on this machine goes on with it: its port is
//! among the variables of the job, which the journal keeps. It ends with the job, or with its last node.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use elasticrun_protocol::control;
use elasticrun_ps::{Options, Postoffice};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{
    begin::Identity,
    config::{ParameterServers, Settings},
    start::is_local,
};

/// The first word of the command line of the scheduler's process.
pub const SCHEDULER: &str = "__ps-scheduler";

/// The variable of the job with the scheduler's port.
const PORT: &str = "DMLC_PS_ROOT_PORT";

/// How long a scheduler waits for its nodes: servers and workers start when hosts are there.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a later driver waits for the scheduler of the run to take a connection.
const ANSWER: Duration = Duration::from_secs(2);

/// A port for the scheduler of a new job. It was free a moment ago.
///
/// # Errors
/// The error of the system.
pub(crate) fn free_port(settings: &Settings) -> io::Result<u16> {
    Ok(TcpListener::bind((listen(settings), 0))?
        .local_addr()?
        .port())
}

/// The variable that keeps the port.
pub(crate) fn variable(port: u16) -> (String, String) {
    (PORT.to_owned(), port.to_string())
}

/// What agents are told.
pub(crate) fn setup(settings: &Settings, identity: &Identity) -> Option<control::ParameterServers> {
    let ParameterServers { servers, replicas } = settings.parameter_servers?;
    let port = identity.variables.get(PORT)?.parse().ok()?;
    Some(control::ParameterServers {
        port,
        servers: servers.get(),
        workers: settings.workers.min_np.get(),
        replicas,
    })
}

fn listen(settings: &Settings) -> IpAddr {
    match is_local(settings) {
        true => Ipv4Addr::LOCALHOST.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// The scheduler of a job. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Scheduler(Option<Child>);

impl Scheduler {
    /// Starts the scheduler, or finds the one that a former driver has started.
    ///
    /// # Errors
    /// Its process cannot be started, or that of a former driver is gone, and the values of the servers are lost with it.
    pub(crate) fn start(
        settings: &Settings,
        setup: &control::ParameterServers,
        resumes: bool,
    ) -> anyhow::Result<Self> {
        let address = SocketAddr::new(listen(settings), setup.port);
        if resumes {
            let of_run = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), setup.port);
            TcpStream::connect_timeout(&of_run, ANSWER).context(
                "the scheduler of the parameter servers is gone: the run cannot be resumed",
            )?;
            return Ok(Self(None));
        }
        let program = std::env::current_exe().context("cannot find the own program")?;
        let child = Command::new(program)
            .arg(SCHEDULER)
            .envs(setup.variables())
            .env("DMLC_ROLE", "scheduler")
            .env("DMLC_PS_ROOT_URI", address.ip().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // A key of the terminal reaches the driver only, which ends the servers before.
            .process_group(0)
            .spawn()
            .context("cannot start the scheduler of the parameter servers")?;
        Ok(Self(Some(child)))
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// Runs the scheduler in this process until all nodes have ended.
///
/// # Errors
/// The variables are wrong, the port is taken, or a node is lost at the end.
pub fn serve() -> anyhow::Result<()> {
    let mut options = Options::from_env()?;
    (options.start_timeout, options.request_timeout) = (PATIENCE, PATIENCE);
    let postoffice = Postoffice::start(options)?;
    Ok(postoffice.finalize()?)
}

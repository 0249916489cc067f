//! The scheduler of the parameter servers of a job, beside the driver.
//!
//! ```text
//! driver ---- is connected to ----> elasticrun __ps-scheduler  (a process of its own, which all nodes connect to)
//!     |                                      ^
//!     '--> agents ---- start ----+-- servers (DMLC_ROLE=server) and workers (DMLC_ROLE=worker)
//! ```
//! The scheduler outlives a driver that is killed, as agents and workers do, and a later driver on this machine goes on with it: its port is
//! among the variables of the job, which the journal keeps. It ends with the job, or once its driver and all its nodes are gone.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, TcpListener},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt as _,
        unix::{
            net::{SocketAddr, UnixListener, UnixStream},
            process::CommandExt as _,
        },
    },
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use elasticrun_protocol::{auth::Secret, control};
use nix::{
    sys::socket::{getsockopt, sockopt::PeerCredentials},
    unistd::geteuid,
};
pub use scheduler::serve;

use crate::{
    begin::Identity,
    config::{ParameterServers, Settings},
    start::is_local,
};

mod scheduler;

/// The first word of the command line of the scheduler's process.
pub const SCHEDULER: &str = "__ps-scheduler";

/// The variable that says where the scheduler listens.
const PORT: &str = "DMLC_PS_ROOT_PORT";

/// The variable with the key of the nodes.
const KEY: &str = "ELASTICRUN_PS_KEY";

/// The variables that say where and how often values are saved.
const SNAPSHOTS: &str = "ELASTICRUN_PS_SNAPSHOTS";
const INTERVAL: &str = "ELASTICRUN_PS_SNAPSHOT_INTERVAL";

/// How long the scheduler may take to look at the place of snapshots.
const FIRST_WORD: Duration = Duration::from_secs(60);

/// How long the scheduler may take to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A port for the scheduler of a new job.
///
/// # Errors
/// The error of the system.
pub(crate) fn free_port(settings: &Settings) -> io::Result<u16> {
    Ok(TcpListener::bind((listen(settings), 0))?
        .local_addr()?
        .port())
}

/// The variables of a job that keep the port of the scheduler, the key of all nodes, and where values are saved.
pub(crate) fn variables(
    servers: &ParameterServers,
    port: u16,
    of_job: &Secret,
) -> impl Iterator<Item = (String, String)> {
    let key = of_job.derive("parameter servers").to_hex();
    let snapshots = servers.snapshots.as_ref().map(|snapshots| {
        let interval = snapshots.interval.as_secs_f64().to_string();
        [(SNAPSHOTS, snapshots.place.clone()), (INTERVAL, interval)]
    });
    [(PORT, port.to_string()), (KEY, key)]
        .into_iter()
        .chain(snapshots.into_iter().flatten())
        .map(|(name, value)| (name.to_owned(), value))
}

/// Whether the scheduler gets this variable of the job.
fn is_for_scheduler(name: &str) -> bool {
    let is_cloud = name.starts_with("AWS_") || name.starts_with("GOOGLE_");
    is_cloud || [KEY, SNAPSHOTS, INTERVAL].contains(&name)
}

/// What agents are told.
pub(crate) fn setup(settings: &Settings, identity: &Identity) -> Option<control::ParameterServers> {
    let ParameterServers {
        servers, replicas, ..
    } = settings.parameter_servers.as_ref()?;
    let port = identity.variables.get(PORT)?.parse().ok()?;
    Some(control::ParameterServers {
        port,
        servers: servers.get(),
        workers: settings.workers.min_np.get(),
        replicas: *replicas,
    })
}

fn listen(settings: &Settings) -> IpAddr {
    match is_local(settings) {
        true => Ipv4Addr::LOCALHOST.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// The scheduler of a job, as its driver knows it. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Scheduler {
    /// For as long as it is open, the job has a driver. A byte ends the scheduler.
    connection: UnixStream,
    /// Its process, if this driver has started it.
    child: Option<Child>,
}

impl Scheduler {
    /// Starts the scheduler, or finds the one that a former driver has started. `variables` are those of the job.
    ///
    /// # Errors
    /// Its process cannot be started, or that of a former driver is gone, and the values of the servers are lost with it.
    pub(crate) fn start(
        settings: &Settings,
        setup: &control::ParameterServers,
        variables: &BTreeMap<String, String>,
        resumes: bool,
    ) -> anyhow::Result<Self> {
        let address =
            SocketAddr::from_abstract_name(format!("elasticrun-ps-scheduler/{}", setup.port))?;
        let connect = || {
            let connection = UnixStream::connect_addr(&address)?;
            let peer = getsockopt(&connection, PeerCredentials)?;
            ensure!(
                peer.uid() == geteuid().as_raw(),
                "another user has taken its address"
            );
            connection.set_read_timeout(Some(LAST_WORDS))?;
            anyhow::Ok(connection)
        };
        if resumes {
            let connection = connect().context(
                "the scheduler of the parameter servers is gone: the run cannot be resumed",
            )?;
            return Ok(Self {
                connection,
                child: None,
            });
        }
        let start = || {
            // The connection is there before the process that accepts it.
            let drivers = OwnedFd::from(UnixListener::bind_addr(&address)?);
            let connection = connect()?;
            let mut child = Command::new(std::env::current_exe()?)
                .arg(SCHEDULER)
                .envs(setup.variables())
                .envs(variables.iter().filter(|(name, _)| is_for_scheduler(name)))
                .env("DMLC_ROLE", "scheduler")
                .env("DMLC_PS_ROOT_URI", listen(settings).to_string())
                .stdin(drivers)
                .stdout(Stdio::null())
                // A key of the terminal reaches the driver only, which ends the servers before.
                .process_group(0)
                .spawn()?;
            if variables.contains_key(SNAPSHOTS) {
                connection.set_read_timeout(Some(FIRST_WORD))?;
                if (&connection).read_exact(&mut [0]).is_err() {
                    let _ = child.kill();
                    let _ = child.wait();
                    // It has said why.
                    bail!("it cannot use the place of --ps-snapshots");
                }
                connection.set_read_timeout(Some(LAST_WORDS))?;
            }
            anyhow::Ok(Self {
                connection,
                child: Some(child),
            })
        };
        start().context("cannot start the scheduler of the parameter servers")
    }

    /// The job is over: the scheduler tells all nodes, and ends.
    pub(crate) fn end(&self) {
        // It may have ended.
        let _ = (&self.connection).write_all(&[0]);
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.end();
        // The end of its stream, or its time is over.
        let _ = self.connection.read(&mut [0]);
        if let Some(child) = &mut self.child {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

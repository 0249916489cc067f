//! The process of the scheduler.

use std::{future::pending, io, os::fd::AsFd as _, time::Duration};

use elasticrun_ps::{Options, Postoffice};
use nix::unistd::geteuid;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    task::{JoinError, JoinHandle, spawn_blocking},
    time::interval,
};

/// How long a scheduler waits for its nodes: servers and workers start when hosts are there.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How often the scheduler looks whether it is alone, and how often in a row until it ends: its driver and all nodes are gone.
const LOOKS: Duration = Duration::from_secs(1);
const ABANDONED: u32 = 30;

/// Runs the scheduler in this process until its driver ends it, or until the driver and all nodes are gone. Standard input is the socket at
/// which drivers connect.
///
/// The nodes of an elastic job do not end it: workers and servers that fail are replaced.
///
/// # Errors
/// The variables are wrong, the port is taken, or standard input is no such socket.
pub fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(schedule());
    // Nodes that are awaited may never come.
    runtime.shutdown_background();
    result
}

/// The drivers of a job: one after the other.
struct Drivers {
    listener: UnixListener,
    present: Option<UnixStream>,
}

impl Drivers {
    fn at_standard_input() -> io::Result<Self> {
        let listener =
            std::os::unix::net::UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            present: None,
        })
    }

    /// Tells the driver that has started this process that values can be saved.
    async fn begins(&mut self) -> io::Result<()> {
        let (mut driver, _) = self.listener.accept().await?;
        driver.write_u8(0).await?;
        self.present = Some(driver);
        Ok(())
    }

    /// Returns when a driver ends the job. Drivers come and go until then. Does not lose one if it is dropped.
    async fn end(&mut self) -> io::Result<()> {
        loop {
            let byte = async {
                match &mut self.present {
                    Some(driver) => driver.read_u8().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                read = byte => match read {
                    Ok(_) => return Ok(()),
                    Err(_) => self.present = None,
                },
                accepted = self.listener.accept() => {
                    let (driver, _) = accepted?;
                    if driver.peer_cred()?.uid() == geteuid().as_raw() {
                        self.present = Some(driver);
                    }
                }
            }
        }
    }
}

/// The end of the nodes, if it is awaited.
async fn ended<T>(end: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    match end {
        Some(end) => end.await,
        None => pending().await,
    }
}

async fn schedule() -> anyhow::Result<()> {
    let mut drivers = Drivers::at_standard_input()?;
    let mut options = Options::from_env()?;
    options.start_timeout = PATIENCE;
    let elastic = options.elastic;
    if let Some(snapshots) = options.snapshots.clone() {
        spawn_blocking(move || snapshots.check()).await??;
        drivers.begins().await?;
    }
    let mut start = spawn_blocking(move || Postoffice::start(options));
    let mut started: Option<Postoffice> = None;
    let mut end = None;
    let mut ticks = interval(LOOKS);
    let mut alone = 0;
    while alone < ABANDONED {
        tokio::select! {
            told = drivers.end() => {
                told?;
                break;
            }
            result = &mut start, if started.is_none() => {
                let postoffice = result??;
                if !elastic {
                    // All nodes end together.
                    let postoffice = postoffice.clone();
                    end = Some(spawn_blocking(move || postoffice.finalize()));
                }
                started = Some(postoffice);
            }
            result = ended(&mut end) => return Ok(result??),
            _ = ticks.tick() => {
                let has_nodes = started.as_ref().is_some_and(Postoffice::has_others);
                alone = if drivers.present.is_some() || has_nodes { 0 } else { alone + 1 };
            }
        }
    }
    if let Some(postoffice) = started {
        postoffice.finalize_async();
    }
    Ok(())
}

//! One launch, from its preparation to the end of its processes.

use std::{io, net::SocketAddr, pin::pin, process::ExitStatus, sync::Arc, time::Duration};

use elasticrun_agent::Launch;
use elasticrun_plugin_sdk::Host;
use elasticrun_protocol::HostId;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    sync::{Semaphore, watch},
    time::timeout,
};

use super::{agent_log::AgentLog, local, processes::Processes, program::Program, push, reach, ssh};
use crate::config;

/// How long to read the messages of an agent that has ended.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Lines of an agent's standard error that are kept to report why it ended.
const TAIL: usize = 5;

/// The reason of the end of a launch that was stopped.
const STOPPED: &str = "its launch was ended";

/// The input of a launch. Its task resolves names and reads files, since both may block.
pub(super) struct Plan {
    pub(super) launcher: config::Launcher,
    pub(super) host: Host,
    pub(super) settings: config::Launch,
    pub(super) program: Program,
    /// The turns of pushes, for all launches.
    pub(super) pushes: Arc<Semaphore>,
    pub(super) log: AgentLog,
    /// Hosts on the way to which the agent finds the driver, best first.
    pub(super) routes: Arc<[String]>,
    /// The address of the driver's socket.
    pub(super) bound: SocketAddr,
}

impl Plan {
    /// The processes to start, and the driver's addresses for the agent. Blocks.
    fn prepare(self) -> io::Result<(Processes, Vec<String>)> {
        let start = match self.launcher {
            config::Launcher::Ssh => {
                ssh::start(&self.settings, &self.program, &self.host, &self.pushes)?
            }
            _ => Processes {
                push: None,
                agent: local::command(&self.program),
            },
        };
        let network = reach::System::new(&self.settings, &self.host);
        let addresses = reach::candidates(self.bound, self.launcher, &self.routes, &network);
        Ok((start, addresses))
    }
}

/// Runs a launch to its end. Returns why it ended.
pub(super) async fn supervise(
    plan: Plan,
    mut launch: Launch,
    mut stop: watch::Receiver<Option<Duration>>,
) -> String {
    let log = plan.log.clone();
    let prepared = tokio::task::spawn_blocking(|| plan.prepare());
    let Processes { mut push, agent } = match unless_stopped(&mut stop, prepared).await {
        None => return STOPPED.into(),
        Some(Ok(Ok((start, addresses)))) => {
            launch.driver = addresses;
            start
        }
        Some(Ok(Err(error))) => return format!("cannot start its agent: {error}"),
        Some(Err(error)) => return format!("cannot start its agent: {error}"),
    };
    let mut agent = agent;
    loop {
        let (status, tail) = match run_agent(&mut agent, &launch, &log, &mut stop).await {
            Ok(ended) => ended,
            Err(why) => return why,
        };
        let not_there = status.code() == Some(push::NOT_THERE);
        match push.take() {
            Some(push) if not_there => match unless_stopped(&mut stop, push.run()).await {
                None => return STOPPED.into(),
                Some(Ok(())) => {}
                Some(Err(why)) => return why,
            },
            _ if not_there => return "the copy of the binary cannot be run there: is ~/.cache mounted with noexec?".into(),
            _ if tail.is_empty() => return format!("its agent ended ({status})"),
            _ => return tail.join("; "),
        }
    }
}

/// Runs the process of the agent to its end. Returns its status and the last lines of its standard error.
///
/// # Errors
/// Why there is no status.
async fn run_agent(
    command: &mut Command,
    launch: &Launch,
    log: &AgentLog,
    stop: &mut watch::Receiver<Option<Duration>>,
) -> Result<(ExitStatus, Vec<String>), String> {
    let mut child = (command.spawn())
        .map_err(|error| format!("cannot start {:?}: {error}", command.as_std().get_program()))?;
    if let Err(error) = send_settings(&mut child, launch).await {
        tracing::debug!(%error, "the agent did not take its settings");
    }
    let mut tail = Vec::new();
    match unless_stopped(stop, follow(&mut child, &launch.host, log, &mut tail)).await {
        None => {
            let _ = child.kill().await;
            Err(STOPPED.into())
        }
        Some(Ok(status)) => Ok((status, tail)),
        Some(Err(error)) => Err(format!("its agent cannot be followed: {error}")),
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
async fn send_settings(child: &mut Child, launch: &Launch) -> io::Result<()> {
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
    log: &AgentLog,
    tail: &mut Vec<String>,
) -> io::Result<ExitStatus> {
    let Some(stderr) = child.stderr.take() else {
        return child.wait().await;
    };
    let mut lines = BufReader::new(stderr).lines();
    let record = async {
        while let Ok(Some(line)) = lines.next_line().await {
            tail.extend(log.record(host, &line));
            if tail.len() > TAIL {
                tail.remove(0);
            }
        }
    };
    let mut record = pin!(record);
    tokio::select! {
        biased;
        () = &mut record => child.wait().await,
        status = child.wait() => {
            // A process that the agent has left behind may hold its standard error.
            let _ = timeout(LAST_LINES, record).await;
            status
        }
    }
}

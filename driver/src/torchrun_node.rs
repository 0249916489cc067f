//! The nodes of `elasticrun torchrun`, if there are several. The first runs the driver and an agent as its child. The others
//! run an agent in this process.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::ToSocketAddrs as _,
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::Path,
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, anyhow};
use elasticrun_agent::{machine_name, read_token_file};
use elasticrun_protocol::HostId;
use elasticrun_tls::token::Token;
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    cli::{AgentStart, Endpoint, JoinRequest, NodeRequest, RunRequest},
    config::{SlotsPerHost, is_local},
    elected_node, exit, host_agent, join_token,
};

/// How often a node looks for the join token. The file may come over the network, which does not tell about changes.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long a node waits for the join token, as torchrun waits for a rendezvous.
const TOKEN_TIMEOUT: Duration = Duration::from_mins(10);

/// When a line tells what the node waits for.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// Runs this node. `driver` runs a job to its end. Returns the exit code.
///
/// # Errors
/// The join token cannot be written, or the agent cannot be started.
pub fn run(node: NodeRequest, driver: impl FnOnce(RunRequest) -> u8) -> anyhow::Result<u8> {
    let (run, agent, unless_another) = match node {
        NodeRequest::Other(agent) => return Ok(other(agent)),
        NodeRequest::Elected(node) => return elected_node::run(node),
        NodeRequest::First {
            run,
            agent,
            unless_another,
        } => (run, agent, unless_another),
    };
    if let Some(directory) = agent.token_file.parent() {
        fs::create_dir_all(directory).with_context(|| {
            format!(
                "cannot keep the join token of the nodes in {}; give another file by --join-token-file",
                directory.display()
            )
        })?;
    }
    let Some(_lock) = lock(&agent)? else {
        return match unless_another {
            true => Ok(other(agent)),
            false => Err(anyhow!(
                "another job runs at {}: give each of its nodes another --node-rank, or this job another port",
                agent.driver
            )),
        };
    };
    join_token::read_or_create(&agent.token_file)?;
    let mut child = start(&agent).context("cannot start an agent")?;
    let code = driver(*run);
    end(&mut child);
    Ok(code)
}

/// Locks the end point for the first node of a job, as long as the file is open. `None` if a node of this machine has it.
fn lock(agent: &JoinRequest) -> anyhow::Result<Option<Flock<File>>> {
    let mut path = agent.token_file.clone().into_os_string();
    path.push(".lock");
    let open = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| Path::new(&path).display().to_string())?;
    match Flock::lock(open, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(anyhow!("{}: {error}", Path::new(&path).display())),
    }
}

/// Runs an agent once the first node has written the join token. Returns the exit code.
fn other(mut agent: JoinRequest) -> u8 {
    if is_local(&agent.driver.host) && agent.host.is_none() {
        // The first node has the name of this machine.
        let name = machine_name().ok();
        agent.host = name.map(|name| HostId::new(format!("{name}-{}", process::id())));
    }
    let began = Instant::now();
    let mut told = false;
    loop {
        let why = match read_token_file(&agent.token_file) {
            Ok(token) if is_valid(&token) => {
                return host_agent::run(AgentStart::Join(Box::new(agent)));
            }
            Ok(_) => "it has expired".to_owned(),
            Err(error) if error.is_missing() => error.to_string(),
            Err(error) => {
                say(&error.to_string());
                return exit::USAGE;
            }
        };
        let file = agent.token_file.display();
        if began.elapsed() > TOKEN_TIMEOUT {
            say(&format!("no join token of the first node: {why}"));
            return exit::USAGE;
        }
        if began.elapsed() > TELL_AFTER && !std::mem::replace(&mut told, true) {
            say(&format!(
                "waiting for the join token of the first node in {file}: {why}; share this directory, or give a copy by --join-token-file"
            ));
            let Endpoint { host, port } = &agent.driver;
            if let Err(error) = (host.as_str(), *port).to_socket_addrs() {
                say(&format!(
                    "{host}, the first node, is not known here: {error}"
                ));
            }
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

fn is_valid(token: &Token) -> bool {
    !token.is_expired(SystemTime::now())
}

fn say(line: &str) {
    // If stderr is closed, there is no other place for the line.
    let _ = writeln!(io::stderr(), "elasticrun: {line}");
}

/// Starts an agent in a process group of its own: Ctrl-C is for the driver, which ends the agent in order.
fn start(agent: &JoinRequest) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["agent", "--join", &agent.driver.to_string()])
        .arg("--join-token-file")
        .arg(&agent.token_file)
        .arg("--one-run")
        .stdin(Stdio::null())
        .process_group(0);
    if let SlotsPerHost::Fixed(slots) = agent.slots {
        command.args(["--slots", &slots.to_string()]);
    }
    if let Some(host) = &agent.host {
        command.args(["--host", host.as_str()]);
    }
    command.spawn()
}

/// Ends the agent of a driver that has ended. It is about to end by itself, unless the driver failed before they met.
fn end(child: &mut Child) {
    let id = Pid::from_raw(child.id().cast_signed());
    // It may have ended.
    let _ = kill(id, Signal::SIGTERM);
    if let Err(error) = child.wait() {
        tracing::warn!(%error, "the agent of this host is not awaited");
    }
}

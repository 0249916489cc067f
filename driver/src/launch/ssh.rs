//! An agent on another machine, started by the system's ssh with its configuration, known hosts and keys.
//!
//! ssh never prompts (`BatchMode`): a job that waits for an invisible password prompt is worse than one that fails. The
//! remote command holds the path of the binary, with `--push-binary` also its length and hash, and nothing else. The job's
//! secret goes by standard input.

use std::{ffi::OsString, io, path::Path, process::Stdio, sync::Arc};

use elasticrun_plugin_sdk::Host;
use tokio::{process::Command, sync::Semaphore};

use super::{
    processes::Processes,
    program::Program,
    push::{Push, Remote},
};
use crate::config;

/// Timeout of a connection of ssh, in seconds.
const CONNECT_TIMEOUT: u32 = 15;

/// Options of a push. ssh ends half a minute after the host has stopped answering, so that it does not keep its turn.
const WHILE_PUSHING: [&str; 4] = [
    "-o",
    "ServerAliveInterval=10",
    "-o",
    "ServerAliveCountMax=3",
];

/// The launch of an agent on `host`. Blocks: it may read the program.
pub(super) fn start(
    settings: &config::Launch,
    program: &Program,
    host: &Host,
    pushes: &Arc<Semaphore>,
) -> io::Result<Processes> {
    let mut agent = ssh(settings, host, &[]);
    if !settings.push_binary {
        agent.arg(find_and_run(program.path()));
        return Ok(Processes { push: None, agent });
    }
    let remote = Remote::new(program.image()?);
    agent.arg(remote.run());
    let mut push = ssh(settings, host, &WHILE_PUSHING);
    push.arg(remote.receive());
    let push = Some(Push::new(push, pushes.clone()));
    Ok(Processes { push, agent })
}

/// The name or address to which ssh connects for a host, as its configuration says. Blocks.
pub(super) fn name_of(settings: &config::Launch, host: &Host) -> Option<String> {
    let mut command = std::process::Command::new("ssh");
    // ssh -G connects to nothing.
    command.args(arguments(settings, host)).args(["-G", "--"]);
    let output = command.arg(&host.address).stdin(Stdio::null()).output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("hostname "))?;
    (name != host.address).then(|| name.to_owned())
}

/// The options of ssh for a host.
fn arguments(settings: &config::Launch, host: &Host) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    // Options of the user come first: ssh takes the first value of an option.
    for option in &settings.ssh.options {
        words.extend(["-o".into(), option.as_str().into()]);
    }
    words.extend(["-T", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o"].map(Into::into));
    words.push(format!("ConnectTimeout={CONNECT_TIMEOUT}").into());
    if let Some(port) = host.port.or(settings.ssh.port.map(Into::into)) {
        words.extend(["-p".into(), port.to_string().into()]);
    }
    if let Some(identity) = &settings.ssh.identity_file {
        words.extend(["-i".into(), identity.into()]);
    }
    if let Some(user) = &host.user {
        words.extend(["-l".into(), user.into()]);
    }
    words
}

fn ssh(settings: &config::Launch, host: &Host, more: &[&str]) -> Command {
    let mut command = Command::new("ssh");
    command.args(arguments(settings, host)).args(more);
    command.arg("--").arg(&host.address);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // A Ctrl-C on the terminal must not end ssh before the agent.
    // SAFETY: only system calls are made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            elasticrun_agent::restore_open_files();
            Ok(())
        });
    }
    command
}

/// A shell command that runs the binary at the same path as here, else the one on the PATH, else prints an error.
fn find_and_run(binary: &Path) -> String {
    let here = quote(&binary.to_string_lossy());
    format!(
        "b={here}; [ -x \"$b\" ] || b=$(command -v elasticrun) || {{ echo 'elasticrun: no elasticrun on this host; \
         install it there or give --push-binary' >&2; exit 127; }}; exec \"$b\" agent"
    )
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        let words = command.as_std().get_args();
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn a_push_to_a_host_that_stops_answering_ends() {
        let settings = config::Launch {
            launcher: None,
            worker_env: config::WorkerEnv::Driver,
            listen: None,
            join: None,
            embedder_fd: None,
            call: None,
            env: Vec::new(),
            spark: None,
            ssh: config::Ssh {
                port: None,
                identity_file: None,
                options: Vec::new(),
            },
            push_binary: true,
            network_interfaces: Vec::new(),
            encrypt_data: false,
            commit_memory: None,
            preload: config::Preload::None,
            notice_file: None,
        };
        let push = words(&ssh(&settings, &Host::new("h"), &WHILE_PUSHING));
        let end = WHILE_PUSHING.map(str::to_owned).to_vec();
        assert!(push.ends_with(&[end, vec!["--".into(), "h".into()]].concat()));
    }

    #[test]
    fn a_path_cannot_leave_its_quotes() {
        assert_eq!(quote("/a b/it's"), r"'/a b/it'\''s'");
        assert!(find_and_run(Path::new("/x/$(rm)/e")).starts_with("b='/x/$(rm)/e';"));
    }
}

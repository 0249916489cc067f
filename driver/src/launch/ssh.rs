//! An agent on another machine, started by the system's ssh with its configuration, known hosts and keys.
//!
//! ssh never prompts (`BatchMode`): a job that waits for an invisible password prompt is worse than one that fails. The
//! remote command holds the path of the binary and nothing else. The job's secret goes by standard input.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::Path,
    process::Stdio,
};

use elasticrun_plugin_sdk::Host;
use tokio::process::Command;

use super::{
    Push, Start,
    program::{self, Program},
};
use crate::config;

/// Timeout of a connection of ssh, in seconds.
const CONNECT_TIMEOUT: u32 = 15;

/// The launch of an agent on `host`.
pub(super) fn start(
    settings: &config::Launch,
    program: &Program,
    host: &Host,
) -> io::Result<Start> {
    if !settings.push_binary {
        let mut agent = ssh(settings, host);
        agent.arg(find_and_run(program.path()));
        return Ok(Start { push: None, agent });
    }
    let remote = pushed_name()?;
    let mut command = ssh(settings, host);
    command.arg(receive(&remote));
    let mut agent = ssh(settings, host);
    agent.arg(format!("exec \"$HOME/{remote}\" agent"));
    let push = Some(Push { command });
    Ok(Start { push, agent })
}

fn ssh(settings: &config::Launch, host: &Host) -> Command {
    let mut command = Command::new("ssh");
    // Options of the user come first: ssh takes the first value of an option.
    for option in &settings.ssh.options {
        command.arg("-o").arg(option.as_str());
    }
    command.args(["-T", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]);
    command
        .arg("-o")
        .arg(format!("ConnectTimeout={CONNECT_TIMEOUT}"));
    if let Some(port) = host.port.or(settings.ssh.port.map(Into::into)) {
        command.arg("-p").arg(port.to_string());
    }
    if let Some(identity) = &settings.ssh.identity_file {
        command.arg("-i").arg(identity);
    }
    if let Some(user) = &host.user {
        command.arg("-l").arg(user);
    }
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

/// A shell command that saves the binary from standard input, unless it exists. An incomplete copy never has the name.
fn receive(remote: &str) -> String {
    format!(
        "d=\"$HOME/{dir}\"; f=\"$HOME/{remote}\"; if [ -x \"$f\" ]; then cat >/dev/null; else mkdir -p \"$d\" && \
         t=$(mktemp \"$d/push.XXXXXX\") && cat >\"$t\" && chmod 700 \"$t\" && mv \"$t\" \"$f\"; fi",
        dir = Path::new(remote)
            .parent()
            .unwrap_or(Path::new(""))
            .display(),
    )
}

/// Path of the pushed binary below the remote home. It depends on the content, so that a new build is pushed again.
fn pushed_name() -> io::Result<String> {
    let mut hash = DefaultHasher::new();
    std::fs::read(program::RUNNING)?.hash(&mut hash);
    Ok(format!(
        ".cache/elasticrun/bin/elasticrun-{}-{:016x}",
        env!("CARGO_PKG_VERSION"),
        hash.finish()
    ))
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Copies this binary to the host.
pub(super) async fn push(push: Push) -> Result<(), String> {
    let Push { mut command } = push;
    let file = std::fs::File::open(program::RUNNING)
        .map_err(|error| format!("cannot read {}: {error}", program::RUNNING))?;
    let output = command.stdin(Stdio::from(file)).output().await;
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(format!(
                "cannot copy the binary there: {}",
                stderr.trim().lines().last().unwrap_or("ssh failed")
            ))
        }
        Err(error) => Err(format!("cannot run ssh: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_leave_its_quotes() {
        assert_eq!(quote("/a b/it's"), r"'/a b/it'\''s'");
        assert!(find_and_run(Path::new("/x/$(rm)/e")).starts_with("b='/x/$(rm)/e';"));
    }
}

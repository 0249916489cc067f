//! Agents that a test starts itself.

use std::{
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{PATIENCE, Running, Tag, binaries};

/// The port that the driver prints for agents to join at.
///
/// # Panics
/// When the driver prints none.
pub fn port(job: &mut Running) -> u16 {
    job.wait_said("--join");
    let said = job.said();
    let after = said
        .split("--join HOST:")
        .nth(1)
        .unwrap_or_else(|| panic!("{said}"));
    let port = after
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    port.unwrap_or_else(|| panic!("{said}"))
}

/// Starts an agent of two slots that joins by itself.
///
/// # Panics
/// When it cannot be started.
pub fn agent(port: u16, token: &Path, tag: &Tag, name: &str) -> Child {
    let child = joining(port, token, tag, name, 2).spawn();
    child.expect("the binary is built")
}

/// The command of an agent that joins by itself.
pub fn joining(port: u16, token: &Path, tag: &Tag, name: &str, slots: u32) -> Command {
    let (variable, value) = tag.variable();
    let mut command = Command::new(binaries::elasticrun());
    command
        .args([
            "agent",
            "--join",
            &format!("127.0.0.1:{port}"),
            "--slots",
            &slots.to_string(),
            "--host",
            name,
        ])
        .arg("--join-token-file")
        .arg(token)
        .env(variable, value)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Waits for an agent. Gives its exit code and its standard error.
///
/// # Panics
/// When it does not end, or its standard error is not a pipe.
pub fn wait(mut child: Child) -> (i32, String) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("the agent is our child") {
            let mut said = String::new();
            let stderr = child.stderr.as_mut().expect("its standard error is a pipe");
            stderr.read_to_string(&mut said).expect("it is text");
            return (status.code().unwrap_or(-1), said);
        }
        assert!(Instant::now() < deadline, "the agent does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

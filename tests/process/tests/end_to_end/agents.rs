//! Agents that a test starts itself.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use elasticrun_process_tests::{PATIENCE, Running, Tag, binaries};

/// The port that the driver prints for agents to join at.
pub(crate) fn port(job: &mut Running) -> u16 {
    job.wait_said("--join");
    let said = job.said();
    let after = said
        .split("--join HOST:")
        .nth(1)
        .unwrap_or_else(|| panic!("{said}"));
    after.split_whitespace().next().unwrap().parse().unwrap()
}

/// Starts an agent of two slots that joins by itself.
pub(crate) fn agent(port: u16, token: &Path, tag: &Tag, name: &str) -> Child {
    joining(port, token, tag, name, 2).spawn().unwrap()
}

/// The command of an agent that joins by itself.
pub(crate) fn joining(port: u16, token: &Path, tag: &Tag, name: &str, slots: u32) -> Command {
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
pub(crate) fn wait(mut child: Child) -> (i32, String) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
            return (status.code().unwrap_or(-1), said);
        }
        assert!(Instant::now() < deadline, "the agent does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

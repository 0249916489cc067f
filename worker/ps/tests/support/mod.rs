//! Jobs of real processes: a scheduler, servers and workers on loopback.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How long a test waits for anything. Far longer than all timeouts of the nodes.
const LIMIT: Duration = Duration::from_secs(100);

pub(crate) struct Node {
    pub(crate) role: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Node {
    pub(crate) fn start(
        role: &'static str,
        scenario: &str,
        port: u16,
        counts: (u32, u32),
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elasticrun-ps-test-node"));
        command
            .arg(scenario)
            .env("DMLC_ROLE", role)
            .env("DMLC_NUM_SERVER", counts.0.to_string())
            .env("DMLC_NUM_WORKER", counts.1.to_string())
            .env("DMLC_PS_ROOT_URI", "127.0.0.1")
            .env("DMLC_PS_ROOT_PORT", port.to_string())
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self {
            role,
            child,
            stdin,
            lines,
            seen: Vec::new(),
        }
    }

    /// Whether the process has memory in common with another node.
    pub(crate) fn shares_memory(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap();
        maps.contains("memfd:elasticrun-ps")
    }

    /// Waits for a line that contains the text, and returns it.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        self.expect_times(text, 1)
    }

    /// Waits for so many lines that contain the text, and returns the last one.
    pub(crate) fn expect_times(&mut self, text: &str, times: usize) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut found = self.seen.iter().filter(|line| line.contains(text));
            if let Some(line) = found.nth(times - 1) {
                return line.clone();
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(rest) {
                Ok(line) => self.seen.push(line),
                Err(error) => panic!(
                    "{} has not printed {text:?} ({error}): {:?}",
                    self.role, self.seen
                ),
            }
        }
    }

    pub(crate) fn write_line(&mut self) {
        self.say("");
    }

    pub(crate) fn say(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            writeln!(stdin, "{text}").unwrap();
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for the end, and returns its status and all lines.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(rest) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} does not end: {:?}", self.role, self.seen)
                }
            }
        }
        let status = self.child.wait().unwrap();
        (status, std::mem::take(&mut self.seen))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free just now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Starts the scheduler, servers and workers, in this order.
pub(crate) fn start(
    scenario: &str,
    servers: u32,
    workers: u32,
    variables: &[(&str, &str)],
) -> Vec<Node> {
    let port = free_port();
    let roles = std::iter::once("scheduler")
        .chain((0..servers).map(|_| "server"))
        .chain((0..workers).map(|_| "worker"));
    roles
        .map(|role| Node::start(role, scenario, port, (servers, workers), variables))
        .collect()
}

/// Ends a job in which all must succeed, and returns the lines of each node.
pub(crate) fn finish(nodes: Vec<Node>) -> Vec<(&'static str, Vec<String>)> {
    let ends = nodes.into_iter().map(|node| {
        let role = node.role;
        let (status, lines) = node.end();
        assert!(status.success(), "{role}: {status}: {lines:?}");
        (role, lines)
    });
    ends.collect()
}

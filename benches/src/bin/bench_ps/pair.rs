//! A client and a server, each a process, and measurements of both.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use nix::{
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Number of requests.
    pub(crate) count: usize,
    pub(crate) seconds: f64,
    /// Of client and server.
    pub(crate) cpu_seconds: f64,
    /// The median time of a request.
    pub(crate) median_us: f64,
}

/// A client that takes commands, its server, and what else belongs to it.
pub(crate) struct Pair {
    client: Process,
    server: Process,
    _others: Vec<Process>,
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(arguments: &[&str], variables: &[(&str, String)]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("stdin is a pipe")?;
        let stdout = child.stdout.take().context("stdout is a pipe")?;
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "a process of the benchmark ended");
        Ok(line.trim().to_owned())
    }

    fn cpu(&self) -> Result<Duration> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.child.id() as i32))?;
        Ok(Duration::from(clock_gettime(clock)?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pair {
    /// A job of ours.
    pub(crate) fn ours() -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let start = |role: &str| {
            let variables = [
                ("DMLC_ROLE", role.to_owned()),
                ("DMLC_NUM_SERVER", "1".to_owned()),
                ("DMLC_NUM_WORKER", "1".to_owned()),
                ("DMLC_PS_ROOT_URI", "127.0.0.1".to_owned()),
                ("DMLC_PS_ROOT_PORT", port.to_string()),
            ];
            Process::start(&["node"], &variables)
        };
        let scheduler = start("scheduler")?;
        let server = start("server")?;
        let mut client = start("worker")?;
        client.line()?;
        Ok(Self {
            client,
            server,
            _others: vec![scheduler],
        })
    }

    /// Plain TCP.
    pub(crate) fn plain() -> Result<Self> {
        let mut server = Process::start(&["plain-server"], &[])?;
        let address = server.line()?;
        let mut client = Process::start(&["plain-client", &address], &[])?;
        client.line()?;
        Ok(Self {
            client,
            server,
            _others: Vec::new(),
        })
    }

    /// Runs an operation for about so many milliseconds.
    pub(crate) fn measure(
        &mut self,
        operation: &str,
        size: usize,
        window: usize,
        millis: u64,
    ) -> Result<Sample> {
        let before = self.client.cpu()? + self.server.cpu()?;
        writeln!(self.client.stdin, "{operation} {size} {window} {millis}")?;
        let line = self.client.line()?;
        let cpu = self.client.cpu()? + self.server.cpu()? - before;
        let mut words = line.split(' ');
        let mut word = || {
            words
                .next()
                .with_context(|| format!("three numbers, not {line}"))
        };
        Ok(Sample {
            count: word()?.parse()?,
            seconds: word()?.parse()?,
            median_us: word()?.parse()?,
            cpu_seconds: cpu.as_secs_f64(),
        })
    }
}

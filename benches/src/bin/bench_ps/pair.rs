//! A client and a server, each a process, and measurements of both.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    sys::signal::{Signal, kill},
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

use crate::pslite::PsLite;

/// After it a pair without an answer has failed.
const TIMEOUT: Duration = Duration::from_secs(180);

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
    others: Vec<Process>,
    /// The first line of the client.
    greeting: String,
    /// Whether it is stopped while others are measured.
    stops: bool,
}

struct Process {
    name: &'static str,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the {name}"))?;
        let stdin = child.stdin.take().context("stdin is a pipe")?;
        let stdout = child.stdout.take().context("stdout is a pipe")?;
        let (sender, lines) = channel();
        // Ends with the process.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Self {
            name,
            child,
            stdin,
            lines,
        })
    }

    /// This program, in another role.
    fn own(name: &'static str, arguments: &[&str]) -> Result<Self> {
        Self::start(name, Command::new(std::env::current_exe()?).args(arguments))
    }

    fn cpu(&self) -> Result<Duration> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.child.id() as i32))?;
        Ok(Duration::from(clock_gettime(clock)?))
    }

    /// Has all threads run on these processors.
    fn run_on(&self, processors: impl Iterator<Item = usize> + Clone) -> Result<()> {
        let mut set = CpuSet::new();
        for processor in processors {
            set.set(processor)?;
        }
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let id = task?.file_name().to_string_lossy().parse()?;
            sched_setaffinity(Pid::from_raw(id), &set)?;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.child.id() as i32), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pair {
    /// A job of ours. With `local` its nodes share memory, else all goes over TCP.
    pub(crate) fn ours(local: bool) -> Result<Self> {
        Self::job(local, || {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("node");
            if !local {
                command.env("ELASTICRUN_PS_SHARED_MEMORY", "0");
            }
            Ok(command)
        })
    }

    /// A job of ps-lite.
    ///
    /// Its threads poll without a pause, so it is stopped while others are measured. Its scheduler has no part in requests.
    pub(crate) fn pslite(pslite: &PsLite, local: bool) -> Result<Self> {
        let mut pair = Self::job(local, || pslite.command()).with_context(|| {
            format!(
                "ps-lite fails; its messages are in {}",
                pslite.log().display()
            )
        })?;
        for process in pair.others.iter().chain([&pair.client, &pair.server]) {
            process.signal(Signal::SIGSTOP)?;
        }
        pair.stops = true;
        Ok(pair)
    }

    /// A scheduler, a server and a worker.
    fn job(local: bool, command: impl Fn() -> Result<Command>) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let start = |role: &'static str| {
            let mut command = command()?;
            let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            for name in inherited.filter(|name| name.starts_with("DMLC_")) {
                command.env_remove(name);
            }
            command
                .env("DMLC_ROLE", role)
                .env("DMLC_NUM_SERVER", "1")
                .env("DMLC_NUM_WORKER", "1")
                .env("DMLC_PS_ROOT_URI", "127.0.0.1")
                .env("DMLC_PS_ROOT_PORT", port.to_string())
                .env("DMLC_LOCAL", if local { "1" } else { "0" });
            Process::start(role, &mut command)
        };
        let scheduler = start("scheduler")?;
        let server = start("server")?;
        let client = start("worker")?;
        Self::new(client, server, vec![scheduler])
    }

    /// Plain TCP.
    pub(crate) fn plain() -> Result<Self> {
        let server = Process::own("plain server", &["plain-server"])?;
        let address = server.lines.recv().context("the plain server ended")?;
        let client = Process::own("plain client", &["plain-client", &address])?;
        Self::new(client, server, Vec::new())
    }

    fn new(client: Process, server: Process, others: Vec<Process>) -> Result<Self> {
        let mut pair = Self {
            client,
            server,
            others,
            greeting: String::new(),
            stops: false,
        };
        pair.greeting = pair.line()?;
        Ok(pair)
    }

    /// What the client says of itself.
    pub(crate) fn greeting(&self) -> &str {
        &self.greeting
    }

    /// The next line of the client.
    fn line(&mut self) -> Result<String> {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            match self.client.lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    bail!(
                        "the {} ended: {}",
                        self.client.name,
                        self.client.child.wait()?
                    )
                }
            }
            for process in self.others.iter_mut().chain([&mut self.server]) {
                if let Some(status) = process.child.try_wait()? {
                    bail!("the {} ended: {status}", process.name);
                }
            }
        }
        bail!("no answer of the {} in {TIMEOUT:?}", self.client.name)
    }

    /// Puts client and server on a processor of their own for requests one at a time, as if each had a host. The system would have
    /// them share one or not, as it happens, which changes a round trip by a factor of four. ps-lite's threads poll, so they
    /// keep all processors.
    fn place(&self, window: usize) -> Result<()> {
        let all = std::thread::available_parallelism()?.get();
        if self.stops || all < 2 {
            return Ok(());
        }
        match window {
            1 => {
                self.client.run_on(0..1)?;
                self.server.run_on(1..2)
            }
            _ => {
                self.client.run_on(0..all)?;
                self.server.run_on(0..all)
            }
        }
    }

    /// Runs an operation for about so many milliseconds.
    pub(crate) fn measure(
        &mut self,
        operation: &str,
        size: usize,
        window: usize,
        millis: u64,
    ) -> Result<Sample> {
        if self.stops {
            self.server.signal(Signal::SIGCONT)?;
            self.client.signal(Signal::SIGCONT)?;
        }
        self.place(window)?;
        let before = self.client.cpu()? + self.server.cpu()?;
        writeln!(self.client.stdin, "{operation} {size} {window} {millis}")?;
        let line = self.line()?;
        let cpu = self.client.cpu()? + self.server.cpu()? - before;
        if self.stops {
            self.client.signal(Signal::SIGSTOP)?;
            self.server.signal(Signal::SIGSTOP)?;
        }
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

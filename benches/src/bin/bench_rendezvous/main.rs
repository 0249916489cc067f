//! Measures how fast the driver brings many workers into a round: real TCP, real frames, one core.
//!
//! The driver is the real binary, pinned to one core. The agents are clients in this process, on
//! another core, with eight workers and one connection each. They answer as an agent does and do
//! nothing else. The time runs from the first connection to the last `start`. It has two phases,
//! divided where the last agent has read its set-up. Further figures: the driver's CPU time over
//! both phases, its memory, and bytes over the wire.
//!
//! The division between the phases depends on how fast this process reads: time saved in the first
//! phase often appears in the second. It also depends on the restart mode. In `in-process`, a host
//! gets its workers as it connects, in one write with its set-up. In `auto`, the default, the job may
//! be that of a script without the SDK, whose workers start together and know their number. They
//! start after the last connection, in one more write for each host. Compare two drivers by the
//! total, or in the same mode.
//!
//! `bench_rendezvous --driver PATH [--workers N,N,...] [--trials N] [--restart-mode MODE]`

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use elasticrun_protocol::{
    AgentCommand, AgentReport, FromAgent, HostId, Process, ToAgent,
    auth::{Challenge, Dialler, Purpose, Secret, Verdict, nonce},
    control::{Held, Register, Waiting},
    frame::{FrameBuffer, to_frame},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Semaphore, mpsc},
};

const WORKERS_PER_AGENT: u32 = 8;

#[derive(Parser)]
struct Options {
    /// The binary `elasticrun`; else the one beside this binary.
    #[arg(long)]
    driver: Option<PathBuf>,
    /// Sizes of the rounds.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,100000")]
    workers: Vec<u32>,
    /// Rounds of each size; the median counts.
    #[arg(long, default_value_t = 5)]
    trials: u32,
    /// The driver's `--restart-mode`; else its default.
    #[arg(long)]
    restart_mode: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    connect: Duration,
    wall: Duration,
    /// Of the driver, over both phases, in seconds.
    cpu: f64,
    rss_mib: f64,
    bytes: u64,
}

impl Trial {
    fn total(&self) -> Duration {
        self.connect + self.wall
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let beside = std::env::current_exe()?.with_file_name("elasticrun");
    let driver = options.driver.unwrap_or(beside);
    ensure!(
        driver.exists(),
        "{} is missing: cargo build --release -p elasticrun",
        driver.display()
    );
    println!(
        "{} --driver {}",
        std::env::args().next().unwrap_or_default(),
        driver.display()
    );
    pin(1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    println!("rendezvous: one driver on one core, agents of {WORKERS_PER_AGENT} workers over TCP");
    println!(
        "{:>8} {:>8} {:>11} {:>9} {:>9} {:>14} {:>10} {:>12} {:>10}",
        "workers",
        "agents",
        "connect ms",
        "wall ms",
        "total ms",
        "driver cpu ms",
        "rss MiB",
        "bytes",
        "B/worker"
    );
    let mut medians = Vec::new();
    for &workers in &options.workers {
        let mut trials = Vec::new();
        for _ in 0..options.trials {
            let mode = options.restart_mode.as_deref();
            trials.push(runtime.block_on(trial(&driver, workers, mode))?);
        }
        trials.sort_by_key(Trial::total);
        let median = trials[trials.len() / 2];
        println!(
            "{workers:>8} {:>8} {:>11.2} {:>9.2} {:>9.2} {:>14.2} {:>10.1} {:>12} {:>10.0}",
            workers.div_ceil(WORKERS_PER_AGENT),
            median.connect.as_secs_f64() * 1e3,
            median.wall.as_secs_f64() * 1e3,
            median.total().as_secs_f64() * 1e3,
            median.cpu * 1e3,
            median.rss_mib,
            median.bytes,
            median.bytes as f64 / f64::from(workers),
        );
        medians.push((workers, median));
    }
    let named = medians
        .iter()
        .find(|(workers, _)| *workers == 10_000)
        .or(medians.last())
        .context("no size given")?;
    let mut json = format!(
        "{{\"bench\":\"rendezvous\",\"workers\":{},\"total_s\":{:.5},\"wall_s\":{:.5},\"driver_cpu_s\":{:.4},\"rss_mib\":{:.1},\"bytes\":{}",
        named.0,
        named.1.total().as_secs_f64(),
        named.1.wall.as_secs_f64(),
        named.1.cpu,
        named.1.rss_mib,
        named.1.bytes
    );
    for (workers, trial) in &medians {
        json += &format!(
            ",\"total_{workers}_s\":{:.5},\"wall_{workers}_s\":{:.5},\"driver_cpu_{workers}_s\":{:.4},\"connect_{workers}_s\":{:.5},\"rss_{workers}_mib\":{:.1}",
            trial.total().as_secs_f64(),
            trial.wall.as_secs_f64(),
            trial.cpu,
            trial.connect.as_secs_f64(),
            trial.rss_mib
        );
    }
    println!("{json}}}");
    Ok(())
}

/// Pins this thread, and its children unless they change it, to one core.
fn pin(core: usize) {
    let mut set = nix::sched::CpuSet::new();
    if set.set(core).is_ok() {
        // On a machine with one core, all processes share it.
        let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
    }
}

struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn trial(binary: &PathBuf, workers: u32, restart_mode: Option<&str>) -> Result<Trial> {
    let agents = workers.div_ceil(WORKERS_PER_AGENT);
    let directory = tempfile::tempdir()?;
    let token = directory.path().join("token");
    let text = Secret::random()
        .map_err(|e| anyhow::anyhow!("{e}"))?
        .to_hex();
    write_private(&token, &text)?;
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let np = (agents * WORKERS_PER_AGENT).to_string();
    let child = Command::new("taskset")
        .args(["-c", "0"])
        .arg(binary)
        .args(["--launcher", "agent", "--join-token-file"])
        .arg(&token)
        .args([
            "--listen",
            &address.to_string(),
            "--quiet",
            "-np",
            &np,
            "--max-np",
            &np,
            "--min-np",
            &np,
        ])
        .args(
            restart_mode
                .into_iter()
                .flat_map(|mode| ["--restart-mode", mode]),
        )
        .args([
            "--heartbeat-timeout",
            "120s",
            "--log-level",
            "error",
            "--",
            "true",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the driver (is taskset installed?)")?;
    let driver = Driver(child);
    let bytes = Arc::new(AtomicU64::new(0));
    let (connected_in, mut connected) = mpsc::unbounded_channel();
    let (started_in, mut started) = mpsc::unbounded_channel();
    let secret = Secret::from_token(&text);
    let permits = Arc::new(Semaphore::new(256));
    wait_for_port(address).await?;
    let (began, cpu_before) = (Instant::now(), cpu_seconds(driver.0.id())?);
    for agent in 0..agents {
        let permit = permits.clone().acquire_owned().await?;
        let (secret, bytes) = (secret.clone(), bytes.clone());
        let (connected, started) = (connected_in.clone(), started_in.clone());
        tokio::spawn(async move {
            let outcome = self::agent(agent, address, secret, &bytes, || {
                drop(permit);
                let _ = connected.send(());
            })
            .await;
            let _ = started.send(outcome);
        });
    }
    for _ in 0..agents {
        connected.recv().await.context("agents are gone")?;
    }
    let connect = began.elapsed();
    let last = Instant::now();
    for _ in 0..agents {
        started.recv().await.context("agents are gone")??;
    }
    let wall = last.elapsed();
    let cpu = cpu_seconds(driver.0.id())? - cpu_before;
    Ok(Trial {
        connect,
        wall,
        cpu,
        rss_mib: rss_mib(driver.0.id())?,
        bytes: bytes.load(Ordering::Relaxed),
    })
}

fn write_private(path: &PathBuf, text: &str) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    Ok(writeln!(file, "{text}")?)
}

async fn wait_for_port(address: SocketAddr) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).await.is_err() {
        ensure!(
            Instant::now() < until,
            "the driver does not listen at {address}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// One agent: answers the driver until its round has started.
async fn agent(
    number: u32,
    address: SocketAddr,
    secret: Secret,
    bytes: &AtomicU64,
    connected: impl FnOnce(),
) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut frames = FrameBuffer::default();
    let random = nonce().map_err(|e| anyhow::anyhow!("{e}"))?;
    let dialler = Dialler::new(secret, Purpose::Control, random);
    stream.write_all(&to_frame(dialler.hello())?).await?;
    let challenge: Challenge = read(&mut stream, &mut frames, bytes).await?;
    stream
        .write_all(&to_frame(&dialler.answer(&challenge)?)?)
        .await?;
    let verdict: Verdict = read(&mut stream, &mut frames, bytes).await?;
    ensure!(verdict == Verdict::Welcome, "{verdict:?}");
    let register = Register {
        task: None,
        keeps_run: None,
        agent: None,
        probes: false,
        host: HostId::new(format!("host-{number:05}")),
        software: env!("CARGO_PKG_VERSION").into(),
        slots: WORKERS_PER_AGENT,
        detected_slots: None,
        self_registered: true,
        memory_port: 1,
        free_port: 2,
        address: None,
    };
    stream.write_all(&to_frame(&register)?).await?;
    let mut sent = 0;
    let mut waiting = Vec::new();
    // Connected: the driver has answered with its set-up.
    let first: ToAgent = read(&mut stream, &mut frames, bytes).await?;
    let epoch = first.epoch;
    connected();
    loop {
        let message: ToAgent = read(&mut stream, &mut frames, bytes).await?;
        let report = match message.command {
            AgentCommand::Spawn(spawn) => {
                waiting.push(Waiting {
                    process: spawn.process,
                    left: None,
                    data_port: 3,
                });
                if waiting.len() < WORKERS_PER_AGENT as usize {
                    continue;
                }
                AgentReport::Waiting {
                    workers: std::mem::take(&mut waiting),
                }
            }
            AgentCommand::Plan { round, members } => {
                let held = |process: Process| Held {
                    process,
                    commit: None,
                    empty: false,
                    data_port: 3,
                };
                let members = members.into_iter().map(held).collect();
                AgentReport::Ready {
                    round,
                    members,
                    kept: Vec::new(),
                    free_port: 2,
                }
            }
            AgentCommand::Start(start) => {
                ensure!(
                    start.members.len() == WORKERS_PER_AGENT as usize,
                    "a member is missing"
                );
                return Ok(stream);
            }
            _ => continue,
        };
        sent += 1;
        let frame = to_frame(&FromAgent {
            epoch,
            number: sent,
            report,
        })?;
        bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
        stream.write_all(&frame).await?;
    }
}

async fn read<T: serde::de::DeserializeOwned>(
    stream: &mut TcpStream,
    frames: &mut FrameBuffer,
    bytes: &AtomicU64,
) -> Result<T> {
    loop {
        if let Some(message) = frames.next_message()? {
            return Ok(message);
        }
        let n = stream.read_buf(frames.buffer()).await?;
        ensure!(n > 0, "the driver hung up");
        bytes.fetch_add(n as u64, Ordering::Relaxed);
    }
}

/// Time on a processor of all threads of a process, in seconds.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let mut nanos = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += stat
            .split_whitespace()
            .next()
            .context("no schedstat")?
            .parse::<f64>()?;
    }
    Ok(nanos / 1e9)
}

fn rss_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .context("no VmHWM")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no size")?.parse()?;
    Ok(kib / 1024.0)
}

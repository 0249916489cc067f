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
//! With `--lose N`, N of the hosts are then lost at once, and the figures are those of the driver until the survivors are in
//! their next round.
//!
//! `bench_rendezvous --driver PATH [--workers N,N,...] [--workers-per-agent N] [--lose N] [--trials N] [--restart-mode MODE]`

mod agent;
mod driver;
mod loss;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use tokio::sync::{Semaphore, mpsc};

use crate::{agent::Agent, driver::Driver};

#[derive(Parser)]
struct Options {
    /// The binary `elasticrun`; else the one beside this binary.
    #[arg(long)]
    driver: Option<PathBuf>,
    /// Sizes of the rounds.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,100000")]
    workers: Vec<u32>,
    /// Workers of each host.
    #[arg(long, default_value_t = 8)]
    workers_per_agent: u32,
    /// Hosts to lose at once, instead of the measurement of the first round.
    #[arg(long)]
    lose: Option<u32>,
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
    let per_agent = options.workers_per_agent;
    println!("rendezvous: one driver on one core, agents of {per_agent} workers over TCP");
    let mode = options.restart_mode.as_deref();
    if let Some(lost) = options.lose {
        for &workers in &options.workers {
            let hosts = (workers.div_ceil(per_agent), lost, per_agent);
            runtime.block_on(lose(&driver, hosts, options.trials, mode))?;
        }
        return Ok(());
    }
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
            trials.push(runtime.block_on(trial(&driver, workers, per_agent, mode))?);
        }
        trials.sort_by_key(Trial::total);
        let median = trials[trials.len() / 2];
        println!(
            "{workers:>8} {:>8} {:>11.2} {:>9.2} {:>9.2} {:>14.2} {:>10.1} {:>12} {:>10.0}",
            workers.div_ceil(per_agent),
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

/// Prints the loss of many hosts; of several trials the one whose time is the median.
async fn lose(
    binary: &Path,
    hosts: (u32, u32, u32),
    trials: u32,
    restart_mode: Option<&str>,
) -> Result<()> {
    let mut losses = Vec::new();
    for _ in 0..trials {
        losses.push(loss::trial(binary, hosts, restart_mode).await?);
    }
    losses.sort_by(|one, other| one.wall.total_cmp(&other.wall));
    let (median, (hosts, lost, _)) = (losses[losses.len() / 2], hosts);
    let loss::Loss { wall, cpu, plans } = median;
    println!(
        "{lost} of {hosts} hosts lost at once: next round after {:.1} ms, driver cpu {:.1} ms, plans {plans}",
        wall * 1e3,
        cpu * 1e3
    );
    println!(
        "{{\"bench\":\"loss\",\"hosts\":{hosts},\"lost\":{lost},\"wall_s\":{wall:.5},\"driver_cpu_s\":{cpu:.5},\"plans\":{plans}}}"
    );
    Ok(())
}

async fn trial(
    binary: &Path,
    workers: u32,
    per_agent: u32,
    restart_mode: Option<&str>,
) -> Result<Trial> {
    let agents = workers.div_ceil(per_agent);
    let np = agents * per_agent;
    let driver = Driver::start(binary, np, np, restart_mode).await?;
    let bytes = Arc::new(AtomicU64::new(0));
    let (connected_in, mut connected) = mpsc::unbounded_channel();
    let (started_in, mut started) = mpsc::unbounded_channel();
    let permits = Arc::new(Semaphore::new(256));
    let (began, cpu_before) = (Instant::now(), driver.cpu_seconds()?);
    for number in 0..agents {
        let permit = permits.clone().acquire_owned().await?;
        let (address, token, bytes) = (driver.address, driver.token.clone(), bytes.clone());
        let (connected, started) = (connected_in.clone(), started_in.clone());
        tokio::spawn(async move {
            let agent = async {
                let mut agent = Agent::connect(number, per_agent, address, &token, bytes).await?;
                drop(permit);
                let _ = connected.send(());
                agent.until_started().await?;
                anyhow::Ok(agent)
            };
            let _ = started.send(agent.await);
        });
    }
    for _ in 0..agents {
        connected.recv().await.context("agents are gone")?;
    }
    let connect = began.elapsed();
    let last = Instant::now();
    // Their connections stay open until the driver has ended.
    let mut all = Vec::new();
    for _ in 0..agents {
        all.push(started.recv().await.context("agents are gone")??);
    }
    let wall = last.elapsed();
    let trial = Trial {
        connect,
        wall,
        cpu: driver.cpu_seconds()? - cpu_before,
        rss_mib: driver.rss_mib()?,
        bytes: bytes.load(Ordering::Relaxed),
    };
    // It ends before its connections do, so a profile of it shows these two phases alone.
    drop(driver);
    Ok(trial)
}

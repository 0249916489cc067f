//! From the kill of a worker to the survivors' next committed step.
//!
//! The real driver, its agent and eight workers on one host; a worker is killed at a random moment, 200
//! times, and the clock runs from the return of kill(2) until the last survivor has committed the next step
//! in the new round. Three kinds of step: one that waits 1 ms as for a GPU, one that burns 1 ms of CPU, and
//! a victim with 1 GiB of resident memory. Beside it, in alternation, what a raw gloo needs to make its
//! seven survivors a group again (destroy, init and a barrier, in process).
//!
//! `bench_recovery [--trials N] [--python PATH]`; without a Python that has torch the peer is null.

mod gloo;
mod stamps;
mod trials;
mod worker;

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::{Parser, Subcommand};

use trials::{Job, Kind};

/// Workers of a job.
pub(crate) const RANKS: usize = 8;

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// Kills of each kind.
    #[arg(long, default_value_t = 200)]
    trials: usize,
    /// A Python that has torch.
    #[arg(long)]
    python: Option<PathBuf>,
    /// The binary `elasticrun`; else the one beside this binary.
    #[arg(long)]
    driver: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Role {
    /// A worker of the job (started by elasticrun).
    Worker {
        /// File of the stamps.
        #[arg(long)]
        stamps: PathBuf,
        /// What a step does.
        #[arg(long, value_enum)]
        kind: Kind,
    },
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(Role::Worker { stamps, kind }) = options.role {
        return worker::run(&stamps, kind);
    }
    let driver = match options.driver {
        Some(driver) => driver,
        None => std::env::current_exe()?.with_file_name("elasticrun"),
    };
    println!(
        "recovery: {RANKS} workers on one host, {} kills of a kind (50 of 1 GiB), 1 MB of state",
        options.trials
    );
    println!(
        "{:>22} {:>7} {:>10} {:>10} {:>10}",
        "steps that", "kills", "median ms", "p99 ms", "max ms"
    );
    let mut json = format!(
        "{{\"bench\":\"recovery\",\"ranks\":{RANKS},\"trials\":{}",
        options.trials
    );
    let mut gloo = Vec::new();
    let mut waiting_median = None;
    for (kind, name, key) in [
        (Kind::Wait, "wait 1 ms", ""),
        (Kind::Burn, "burn 1 ms", "burn_"),
        (Kind::Large, "wait; victim 1 GiB", "rss_1gib_"),
    ] {
        if let Some(python) = &options.python {
            gloo.extend(gloo::trials(python, RANKS - 1, 10)?);
        }
        let mut job = Job::start(&driver, kind)?;
        let mut taken: Vec<Duration> = Vec::with_capacity(options.trials);
        for _ in 0..kind.trials(options.trials) {
            taken.push(job.kill_one()?);
        }
        job.stop()?;
        let Spread { median, p99, max } = Spread::of(&mut taken);
        println!(
            "{name:>22} {:>7} {median:>10.2} {p99:>10.2} {max:>10.2}",
            taken.len()
        );
        json += &format!(
            ",\"{key}median_ms\":{median:.2},\"{key}p99_ms\":{p99:.2},\"{key}max_ms\":{max:.2}"
        );
        waiting_median.get_or_insert(median);
    }
    if gloo.is_empty() {
        println!("gloo was not run: give --python (benches/setup_torch.sh makes one)");
        println!("{json},\"gloo_median_ms\":null}}");
        return Ok(());
    }
    let Spread { median, p99, max } = Spread::of(&mut gloo);
    println!(
        "{:>22} {:>7} {median:>10.2} {p99:>10.2} {max:>10.2}",
        "gloo destroy + init",
        gloo.len()
    );
    let ratio = waiting_median.unwrap_or(0.0) / median;
    println!("waiting median / gloo median = {ratio:.3}");
    println!(
        "{json},\"gloo_median_ms\":{median:.2},\"gloo_p99_ms\":{p99:.2},\"gloo_ratio\":{ratio:.3}}}"
    );
    Ok(())
}

/// Milliseconds.
struct Spread {
    median: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    fn of(taken: &mut [Duration]) -> Self {
        taken.sort_unstable();
        let at = |share: f64| {
            let place = ((taken.len() as f64 * share).ceil() as usize).clamp(1, taken.len());
            taken[place - 1].as_secs_f64() * 1e3
        };
        Self {
            median: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

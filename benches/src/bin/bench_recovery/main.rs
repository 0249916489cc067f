//! `bench-recovery`: how long survivors of a SIGKILL are without a committed step.
//!
//! A trial kills a worker at a random moment. The time runs from the return of kill(2) until the
//! last survivor has committed its first step in the next round. Workers write their times to a
//! page that they share with the benchmark ([`elasticrun_benches::shared_page`]), so that logging
//! adds no delay. In alternation, it measures the time that torch's gloo takes to destroy and
//! create a group of as many survivors.

mod gloo;
mod report;
mod worker;

use std::{path::PathBuf, thread, time::Duration};

use anyhow::Context;
use clap::{Parser, ValueEnum};

use elasticrun_benches::{Job, Random, SharedPage, shared_page::RecoveryTimes};
use gloo::Gloo;
use report::Report;

/// What a step does beside its allreduce, and how heavy the victim is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// Waits 1 ms, as for a GPU.
    Wait,
    /// Burns 1 ms of a processor.
    Burn,
    /// Waits 1 ms, and the victim has 1 GiB of resident memory.
    Rss,
}

#[derive(Parser, Debug)]
struct Options {
    /// Kills in each mode.
    #[arg(long, default_value_t = 200)]
    trials: usize,
    /// Workers.
    #[arg(long, default_value_t = 8)]
    ranks: u32,
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_value = "wait,burn,rss")]
    modes: Vec<Mode>,
    /// A python with torch, for the peer.
    #[arg(long)]
    torch_python: Option<PathBuf>,
    /// Leave the peer out.
    #[arg(long)]
    no_gloo: bool,
    /// Keep the driver's log of each job in this file.
    #[arg(long)]
    log: Option<PathBuf>,
}

/// Kills between two turns of the peer; each turn is a job of its own.
const BLOCK: usize = 40;

/// Groups that the peer makes in its turn.
const PEER_BLOCK: usize = 10;

fn main() -> anyhow::Result<()> {
    if let Some(options) = worker::Options::from_environment()? {
        return worker::main(&options);
    }
    let options = Options::parse();
    let mut gloo = match (&options.torch_python, options.no_gloo) {
        (Some(python), false) => Some(Gloo::start(python, options.ranks - 1)?),
        _ => None,
    };
    let mut report = Report::new(options.ranks);
    for mode in &options.modes {
        let mut left = options.trials;
        while left > 0 {
            let block = left.min(BLOCK);
            let (trials, round_times) = kills(*mode, block, &options)?;
            report.add(*mode, &trials, &round_times);
            left -= block;
            if let Some(gloo) = gloo.as_mut().filter(|_| *mode == Mode::Wait) {
                for _ in 0..PEER_BLOCK {
                    report.add_gloo(gloo.rebuild()?);
                }
            }
        }
        report.print_mode(*mode);
    }
    report.finish();
    Ok(())
}

/// The flags of a job with `ranks` workers on one host, which lose one after the other.
fn flags(ranks: u32) -> Vec<String> {
    format!(
        "-np {ranks} --min-np 2 --max-np {ranks} -H localhost:{ranks} --failure-domain slot \
         --blacklist-cooldown-range 0 0 --max-host-failures 0"
    )
    .split_whitespace()
    .map(str::to_owned)
    .collect()
}

/// Runs one job that loses `trials` workers.
fn kills(mode: Mode, trials: usize, options: &Options) -> anyhow::Result<(Vec<Trial>, Vec<f64>)> {
    let page = tempfile::Builder::new()
        .prefix("elasticrun-recovery.")
        .tempfile_in("/dev/shm")?;
    let shared_page = SharedPage::create(page.as_file(), options.ranks)?;
    let name = mode.to_possible_value().context("every mode has a name")?;
    let variables = [
        (worker::PAGE, page.path().as_os_str()),
        (worker::MODE, name.get_name().as_ref()),
    ];
    let job = Job::start(&flags(options.ranks), &variables, options.log.as_deref())?;
    let mut random = Random::new()?;
    let mut times = Vec::with_capacity(trials);
    while times.len() < trials {
        let round = shared_page.wait_steady(&job)?;
        thread::sleep(Duration::from_micros(random.below(20_000)));
        if shared_page.steady() != Some(round) {
            continue;
        }
        let victim = match mode {
            Mode::Rss => worker::HEAVY[times.len() % worker::HEAVY.len()],
            _ => random.below(u64::from(options.ranks)) as u32,
        };
        let killed = shared_page.kill(victim)?;
        let recovered = shared_page
            .wait_survivors(round, victim, &job)
            .with_context(|| format!("after the kill of local rank {victim} in round {round}"))?;
        times.push(Trial::new(killed, recovered));
    }
    shared_page.wait_steady(&job)?;
    shared_page.stop();
    let round_times = job.end()?;
    Ok((times, round_times))
}

/// One kill: times since the return of kill(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) left: Duration,
    pub(crate) begun: Duration,
    pub(crate) committed: Duration,
}

impl Trial {
    fn new(killed: u64, recovered: RecoveryTimes) -> Self {
        let since = |nanos: u64| Duration::from_nanos(nanos.saturating_sub(killed));
        Self {
            left: since(recovered.left),
            begun: since(recovered.begun),
            committed: since(recovered.committed),
        }
    }
}

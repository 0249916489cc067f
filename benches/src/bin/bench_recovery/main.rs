//! `bench-recovery`: how long survivors of a SIGKILL are without a committed step.
//!
//! A trial kills a worker at a random moment and takes the time from the return of kill(2) until the last
//! survivor has committed its first step in the next round. Workers write their times to a page that they
//! share with the bench ([`elasticrun_benches::board`]), so that nothing is logged on the way. Beside it, in alternation, the
//! time that torch's gloo takes to destroy and make a group of as many survivors.

mod gloo;
mod report;
mod worker;

use std::{path::PathBuf, thread, time::Duration};

use anyhow::Context;
use clap::{Parser, ValueEnum};

use elasticrun_benches::{Board, Job, Random, board::Way};
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
    if let Some(how) = worker::Options::from_environment()? {
        return worker::main(&how);
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
            let (trials, formed) = kills(*mode, block, &options)?;
            report.add(*mode, &trials, &formed);
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

/// The flags of a job of so many workers on one host that lose one after the other.
fn flags(ranks: u32) -> Vec<String> {
    format!(
        "-np {ranks} --min-np 2 --max-np {ranks} -H localhost:{ranks} --failure-domain slot \
         --blacklist-cooldown-range 0 0 --max-host-failures 0"
    )
    .split_whitespace()
    .map(str::to_owned)
    .collect()
}

/// One job that loses so many workers.
fn kills(mode: Mode, trials: usize, options: &Options) -> anyhow::Result<(Vec<Trial>, Vec<f64>)> {
    let page = tempfile::Builder::new()
        .prefix("elasticrun-recovery.")
        .tempfile_in("/dev/shm")?;
    let board = Board::create(page.as_file(), options.ranks)?;
    let name = mode.to_possible_value().context("every mode has a name")?;
    let variables = [
        (worker::PAGE, page.path().as_os_str()),
        (worker::MODE, name.get_name().as_ref()),
    ];
    let job = Job::start(&flags(options.ranks), &variables, options.log.as_deref())?;
    let mut random = Random::new()?;
    let mut times = Vec::with_capacity(trials);
    while times.len() < trials {
        let round = board.wait_steady(&job)?;
        thread::sleep(Duration::from_micros(random.below(20_000)));
        if board.steady() != Some(round) {
            continue;
        }
        let victim = match mode {
            Mode::Rss => worker::HEAVY[times.len() % worker::HEAVY.len()],
            _ => random.below(u64::from(options.ranks)) as u32,
        };
        let killed = board.kill(victim)?;
        let way = board
            .wait_survivors(round, victim, &job)
            .with_context(|| format!("after the kill of local rank {victim} in round {round}"))?;
        times.push(Trial::new(killed, way));
    }
    board.wait_steady(&job)?;
    board.stop();
    let formed = job.end()?;
    Ok((times, formed))
}

/// One kill: times since the return of kill(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) left: Duration,
    pub(crate) begun: Duration,
    pub(crate) committed: Duration,
}

impl Trial {
    fn new(killed: u64, way: Way) -> Self {
        let since = |at: u64| Duration::from_nanos(at.saturating_sub(killed));
        Self {
            left: since(way.left),
            begun: since(way.begun),
            committed: since(way.committed),
        }
    }
}

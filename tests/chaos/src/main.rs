//! `make chaos`: real jobs under repeated faults, beside undisturbed runs of the same jobs.
//!
//! | scenario | fault |
//! |---|---|
//! | driver | the driver is killed every 5 s, and its supervisor resumes the run; then a host is listed |
//! | etcd | the driver is killed every 10 s, and a standby driver continues the run from etcd; then a host is listed |
//! | network | the network between the driver and all agents is down for 8 s, again and again |
//!
//! Four workers train with the SDK and commit each step. The log of their commits shows what the user notices: steps that
//! were trained twice, the longest time without a step, and the throughput. The runs alternate, so that a busy machine
//! disturbs all of them alike. The exit code is 1 if a bound of [`report`] is broken.

mod driver;
mod etcd;
mod network;
mod report;
mod steps;
mod turn;

use std::{process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};

use report::Row;
use turn::Turn;

/// How long a run of a smoke test takes: two faults of the driver, or one of the network or with etcd.
const SMOKE: Duration = Duration::from_secs(16);

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Scenario {
    /// The driver dies.
    Driver,
    /// The driver dies, and a standby driver takes its place.
    Etcd,
    /// The network between the driver and all agents is down.
    Network,
}

impl Scenario {
    fn run(self, turn: Turn) -> Row {
        match self {
            Self::Driver => driver::run(turn),
            Self::Etcd => etcd::run(turn),
            Self::Network => network::run(turn),
        }
    }
}

#[derive(Parser, Debug)]
struct Options {
    /// Minutes of training of all runs together.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The faults.
    #[arg(long, value_delimiter = ',', default_value = "driver,network,etcd")]
    scenarios: Vec<Scenario>,
    /// How often each scenario has its turn, with and without faults.
    #[arg(long, default_value_t = 2)]
    turns: u32,
    /// Milliseconds that a step of a worker takes without its allreduce.
    #[arg(long, default_value_t = 30)]
    step: u64,
    /// Runs each scenario once and briefly. Only lost steps are an error.
    #[arg(long)]
    smoke: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let rows = match options.smoke {
        true => smoke(&options),
        false => compare(&options),
    };
    let broken = report::print(rows, !options.smoke);
    for line in &broken {
        eprintln!("chaos: {line}");
    }
    match broken.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn smoke(options: &Options) -> Vec<Row> {
    let run = |scenario: &Scenario| {
        scenario.run(Turn {
            time: SMOKE,
            step_ms: options.step,
            disturbed: true,
        })
    };
    options.scenarios.iter().map(run).collect()
}

/// Runs all scenarios in turns, with and without faults.
fn compare(options: &Options) -> Vec<Row> {
    let count = options.turns * 2 * options.scenarios.len() as u32;
    let time = Duration::from_secs(60 * options.minutes) / count;
    let mut rows: Vec<Row> = Vec::new();
    let mut done = 0;
    for _ in 0..options.turns {
        for scenario in &options.scenarios {
            for disturbed in [false, true] {
                done += 1;
                let row = scenario.run(Turn {
                    time,
                    step_ms: options.step,
                    disturbed,
                });
                eprintln!(
                    "chaos: run {done} of {count}, {:.0} s: {}: {} faults, {} steps, {} lost",
                    time.as_secs_f64(),
                    row.name,
                    row.faults,
                    row.progress.steps,
                    row.progress.lost
                );
                match rows.iter_mut().find(|other| other.name == row.name) {
                    Some(other) => other.add(row),
                    None => rows.push(row),
                }
            }
        }
    }
    rows
}

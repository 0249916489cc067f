//! Compares allreduce, broadcast and allgather with torch's gloo, on this machine.
//!
//! For each number of ranks, three teams of processes run: ours through a shared region, ours over
//! TCP (each rank as a host of its own, over loopback) and gloo. They are measured in turn. A
//! sample is the slowest rank's time for a batch of operations. The result is the median of the
//! samples. Sizes are bytes of the whole message: an allgather of 1 MiB over 8 ranks takes 128 KiB
//! from each.
//!
//! `bench_collectives [--ranks 2,4,8] [--sizes 1KiB,64KiB,1MiB,64MiB] [--samples 7] [--python PATH]
//! [--encrypt] [--without-gloo]`
//!
//! Without `--python`, it runs benches/setup_torch.sh, which creates an environment with torch on
//! demand.

mod rank;
mod report;
mod team;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};

use crate::{
    report::{Cell, Report},
    team::{Sample, Team},
};

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    ranks: Vec<u32>,
    /// Sizes of messages.
    #[arg(long, value_delimiter = ',', default_value = "1KiB,64KiB,1MiB,64MiB", value_parser = size)]
    sizes: Vec<usize>,
    /// Operations.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "allreduce,broadcast,allgather"
    )]
    operations: Vec<String>,
    /// Samples of each; the median counts.
    #[arg(long, default_value_t = 7)]
    samples: usize,
    /// Time that a sample should take.
    #[arg(long, default_value_t = 150)]
    sample_ms: u64,
    /// Reports the fastest sample instead of the median: for work on the code while the machine is busy.
    #[arg(long)]
    fastest: bool,
    /// A python with torch.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Encrypts messages over TCP.
    #[arg(long)]
    encrypt: bool,
    /// Measures ours alone.
    #[arg(long)]
    without_gloo: bool,
}

#[derive(Subcommand)]
enum Role {
    /// One rank of ours; started by this program.
    #[command(hide = true)]
    Rank(rank::Options),
}

fn main() -> Result<()> {
    let options = Options::parse();
    match &options.role {
        Some(Role::Rank(rank)) => rank::run(rank),
        None => compare(&options),
    }
}

fn compare(options: &Options) -> Result<()> {
    let python = if options.without_gloo {
        None
    } else {
        match options.python.clone().map_or_else(set_up_torch, Ok) {
            Ok(python) => Some(python),
            Err(error) => {
                eprintln!("gloo cannot be run, its figures are null: {error:#}");
                None
            }
        }
    };
    let mut report = Report::new();
    for &ranks in &options.ranks {
        ensure!(ranks >= 2, "--ranks must be 2 or more");
        let mut shared = Team::shared_memory(ranks)?;
        let mut tcp = Team::tcp(ranks, options.encrypt)?;
        let mut gloo = match &python {
            Some(python) => Some(Team::gloo(python, ranks)?),
            None => None,
        };
        for operation in &options.operations {
            for &bytes in &options.sizes {
                let mut teams = [Some(&mut shared), Some(&mut tcp), gloo.as_mut()];
                let [shared, tcp, gloo] = sample(&mut teams, operation, bytes, options)?;
                report.add(Cell {
                    operation: operation.clone(),
                    ranks,
                    bytes,
                    shared: shared.context("ours was measured")?,
                    tcp: tcp.context("ours was measured")?,
                    gloo,
                });
            }
        }
    }
    report.finish();
    Ok(())
}

/// Medians of one operation and size for each team, sampled in turn.
fn sample(
    teams: &mut [Option<&mut Team>; 3],
    operation: &str,
    bytes: usize,
    options: &Options,
) -> Result<[Option<Sample>; 3]> {
    let mut iterations = [1; 3];
    for (team, iterations) in teams.iter_mut().zip(&mut iterations) {
        if let Some(team) = team {
            let once = team.measure(operation, bytes, 3)?.time;
            let wanted = options.sample_ms as f64 / 1e3 / once.as_secs_f64();
            *iterations = (wanted as usize).clamp(2, 5000);
        }
    }
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for _ in 0..options.samples {
        for ((team, samples), iterations) in teams.iter_mut().zip(&mut samples).zip(iterations) {
            if let Some(team) = team {
                samples.push(team.measure(operation, bytes, iterations)?);
            }
        }
    }
    Ok(samples.map(|mut samples| {
        samples.sort();
        let place = if options.fastest {
            0
        } else {
            samples.len() / 2
        };
        samples.get(place).copied()
    }))
}

fn set_up_torch() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("setup_torch.sh");
    let output = Command::new(&script)
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("{}", script.display()))?;
    ensure!(output.status.success(), "{} failed", script.display());
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().last().context("it printed nothing")?.into())
}

fn size(text: &str) -> Result<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: usize = digits
        .parse()
        .context("a size is a number and KiB or MiB")?;
    Ok(match &text[digits.len()..] {
        "" | "B" => number,
        "KiB" => number << 10,
        "MiB" => number << 20,
        other => bail!("unknown unit {other}; use B, KiB or MiB"),
    })
}

//! Checks the journals written by `elasticrun-digits --audit`.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::Parser;
use digits::{audit::check, data::Digits};

/// Proves from the journals of a job that each row was used exactly once in each epoch.
#[derive(Debug, Parser)]
struct Arguments {
    /// The directory given to elasticrun-digits --audit.
    directory: PathBuf,
    /// As given to elasticrun-digits.
    #[arg(long, default_value_t = 20)]
    epochs: u64,
    /// The data.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits.parquet"))]
    data: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let rows = Digits::read(&arguments.data)?.train.len() as u64;
    let epochs = arguments.epochs;
    let summary = check(&arguments.directory, rows, epochs)?;
    println!("{} worker processes", summary.processes);
    for round in &summary.rounds {
        let base = round
            .base
            .map_or("the start".to_owned(), |base| format!("commit {base}"));
        let pause = round.pause.map_or(String::new(), |pause| {
            let millis = pause.as_secs_f64() * 1e3;
            format!(", {millis:.1} ms from the last step before it to its first one")
        });
        println!(
            "round {}: {} workers from {base}{pause}",
            round.id.round, round.size
        );
    }
    println!(
        "rows used: {} = {epochs} epochs x {rows} rows, each exactly once; used in vain, in void commits: {}",
        summary.used, summary.void
    );
    Ok(())
}

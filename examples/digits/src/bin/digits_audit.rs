//! Checks the journals that `elasticrun-digits --audit` wrote.

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
    let sizes: Vec<String> = summary.sizes.iter().map(u32::to_string).collect();
    println!(
        "{} worker processes in {} rounds of sizes {}",
        summary.processes,
        sizes.len(),
        sizes.join(", ")
    );
    println!(
        "rows used: {} = {epochs} epochs x {rows} rows, each exactly once; used in vain, in void commits: {}",
        summary.used, summary.void
    );
    Ok(())
}

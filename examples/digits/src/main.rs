//! Trains a small network on handwritten digits, alone or under `elasticrun`.

#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use digits::{
    audit::Journal,
    data::Digits,
    training::{Settings, train},
};
use elasticrun_worker::Error;

/// Trains a small network on handwritten digits. Start it by `elasticrun` to train on many workers.
#[derive(Debug, Parser)]
struct Arguments {
    /// Passes over the data.
    #[arg(long, default_value_t = 20)]
    epochs: u64,
    /// Most samples of one worker in a step.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Of gradient descent, with momentum.
    #[arg(long, default_value_t = 0.05)]
    learning_rate: f32,
    /// Makes each step longer by so many milliseconds, to watch what happens.
    #[arg(long, default_value_t = 0)]
    step_delay: u64,
    /// Writes there which rows were used in which commit; see digits-audit.
    #[arg(long)]
    audit: Option<PathBuf>,
    /// The data.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits.parquet"))]
    data: PathBuf,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let digits = Digits::read(&arguments.data)?;
    let settings = Settings {
        epochs: arguments.epochs,
        batch: arguments.batch,
        learning_rate: arguments.learning_rate,
        step_delay: Duration::from_millis(arguments.step_delay),
    };
    let mut journal = match &arguments.audit {
        Some(directory) => Journal::create(directory)?,
        None => Journal::none(),
    };
    match train(&digits, &settings, &mut journal) {
        Ok(accuracy) => {
            if let Some(accuracy) = accuracy {
                println!("test accuracy {accuracy:.4}");
            }
            Ok(ExitCode::SUCCESS)
        }
        // The job continues without this worker or is over, and the worker's results are not lost.
        Err(error) if error.downcast_ref().is_some_and(Error::is_stop) => {
            eprintln!("{error}");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error),
    }
}

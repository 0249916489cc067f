//! Reads a data set once, shuffled, and prints what came: read [--steps ROWS] PLACE [COLUMN...]
//!
//! With `--steps` it reads in order "deterministic", and prints a digest of which rows came in which step.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU32,
    process::ExitCode,
    sync::Arc,
};

use elasticrun_data::{
    Dataset, Piece, Reader, ReaderOptions,
    elastic::{Elastic, ElasticOptions},
};
use elasticrun_ledger::Order;

fn main() -> ExitCode {
    match read() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("read: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let steps = args.next_if_eq("--steps").and_then(|_| args.next());
    let place = args
        .next()
        .ok_or("which place? read [--steps ROWS] PLACE [COLUMN...]")?;
    let columns: Vec<String> = args.collect();
    let dataset = Arc::new(Dataset::open(&[place], None)?);
    let options = ReaderOptions {
        columns: (!columns.is_empty()).then_some(columns),
        ..ReaderOptions::default()
    };
    match steps {
        Some(rows) => in_steps(dataset, options, rows.parse()?),
        None => shuffled(dataset, options),
    }
}

/// In order "deterministic", by one worker.
fn in_steps(
    dataset: Arc<Dataset>,
    reader: ReaderOptions,
    batch: NonZeroU32,
) -> Result<(), Box<dyn std::error::Error>> {
    let options = ElasticOptions {
        batch,
        weight: 1,
        order: Order::Deterministic(60),
        reader,
    };
    let mut elastic = Elastic::new(dataset, options)?;
    elastic.enter_shard(0, 1)?;
    let (mut rows, mut steps, mut digest) = (0, 0, DefaultHasher::new());
    while let Some(batch) = elastic.next_batch()? {
        rows += batch.rows();
        steps += 1;
        for origin in batch.origins() {
            let group = batch.spans()[origin.span as usize].group;
            (steps, group, origin.row).hash(&mut digest);
        }
    }
    println!("{rows} rows in {steps} steps, digest {:x}", digest.finish());
    Ok(())
}

/// In order "local", by one worker.
fn shuffled(
    dataset: Arc<Dataset>,
    options: ReaderOptions,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut reader = Reader::new(dataset.clone(), options)?;
    // One worker reads all; with more, the ledger divides the pieces.
    let pieces = (0..).zip(dataset.groups()).map(|(group, known)| Piece {
        group,
        lo: 0,
        hi: known.rows,
    });
    reader.assign(0, pieces)?;
    for field in reader.schema().fields() {
        println!("{}: {}", field.name(), field.data_type());
    }
    let (mut rows, mut batches, mut cursors) = (0, 0, 0);
    while let Some(batch) = reader.next_batch(1024)? {
        rows += batch.rows();
        batches += 1;
        // What a commit of these rows would name.
        cursors += reader.progress().len();
    }
    println!("{rows} rows in {batches} batches, {cursors} cursors");
    Ok(())
}

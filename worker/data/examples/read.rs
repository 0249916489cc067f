//! Reads a data set once, shuffled, and prints what came: read PLACE [COLUMN...]

use std::{process::ExitCode, sync::Arc};

use elasticrun_data::{Dataset, Piece, Reader, ReaderOptions};

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
    let mut args = std::env::args().skip(1);
    let place = args.next().ok_or("which place? read PLACE [COLUMN...]")?;
    let columns: Vec<String> = args.collect();
    let dataset = Arc::new(Dataset::open(&[place], None)?);
    let options = ReaderOptions {
        columns: (!columns.is_empty()).then_some(columns),
        ..ReaderOptions::default()
    };
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

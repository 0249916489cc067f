//! Reads a data set once and says what that cost: read DIRECTORY [COLUMN] [BATCH] [SHUFFLE_ROWS] [MEMORY_MIB] [THREADS]
use std::{sync::Arc, time::Instant};

use elasticrun_data::{Dataset, Piece, Reader, ReaderOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let directory = args.first().ok_or("which directory?")?;
    let number =
        |place: usize, default: usize| args.get(place).map_or(Ok(default), |arg| arg.parse());
    let batch_rows = number(2, 1024)?;
    let options = ReaderOptions {
        columns: args.get(1).map(|column| vec![column.clone()]),
        shuffle_rows: number(3, 16_384)?,
        memory: (number(4, 256)? as u64) << 20,
        threads: number(5, 2)?,
        ..ReaderOptions::default()
    };
    let start = Instant::now();
    let dataset = Arc::new(Dataset::open_local([directory])?);
    let pieces: Vec<Piece> = dataset
        .groups()
        .iter()
        .enumerate()
        .map(|(group, known)| Piece {
            group: group as u32,
            lo: 0,
            hi: known.rows,
        })
        .collect();
    let mut reader = Reader::new(dataset.clone(), options)?;
    reader.assign(0, pieces)?;
    let (mut rows, mut cursors, mut most) = (0, 0, 0);
    while let Some(batch) = reader.next_batch(batch_rows)? {
        rows += batch.rows();
        cursors += reader.progress().len();
        most = most.max(reader.memory());
    }
    let wall = start.elapsed().as_secs_f64();
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.split_whitespace().collect();
    let ticks = fields[13].parse::<f64>()? + fields[14].parse::<f64>()?;
    println!(
        "{rows} rows, {cursors} cursors, {:.3} us of CPU a row (user {} system {} ticks, faults {}), {:.0} rows/s, reader's memory at most {} MiB",
        ticks / 100.0 / rows as f64 * 1e6,
        fields[13],
        fields[14],
        fields[9],
        rows as f64 / wall,
        most >> 20
    );
    Ok(())
}

//! Measures reading a data set: one epoch of the column `x`, shuffled and counted, as one line of
//! JSON.
//!
//! The figure is the processor time of all threads from opening the data set to the last batch. The
//! peers in `benches/python/data_peers.py` measure the same. `benches/data.sh` runs both. The bytes that this process
//! has read from files in that time show whether a column is read more than once.

use std::{path::PathBuf, sync::Arc, time::Instant};

use anyhow::{Context, Result};
use clap::Parser;
use elasticrun_data::{Dataset, Piece, Reader, ReaderOptions};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use serde_json::json;

#[derive(Parser)]
struct Args {
    /// Directory of the data set.
    directory: PathBuf,
    /// Rows a batch.
    #[arg(long, default_value_t = 1024)]
    batch: usize,
    /// Rows from which the next one is drawn.
    #[arg(long, default_value_t = 16_384)]
    shuffle_rows: usize,
    /// Budget for row groups in memory, in MiB.
    #[arg(long, default_value_t = 16)]
    memory_mib: u64,
    /// Threads that decode.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Batches between commits, each of which asks for the cursors that moved.
    #[arg(long, default_value_t = 10)]
    commit_every: usize,
    /// Rows of `x` may differ in size.
    #[arg(long)]
    ragged: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let (start, before, read_before) = (Instant::now(), processor_us()?, bytes_read()?);
    let dataset = Arc::new(Dataset::open_local([&args.directory])?);
    let options = ReaderOptions {
        columns: Some(vec!["x".to_owned()]),
        shuffle_rows: args.shuffle_rows,
        memory: args.memory_mib << 20,
        threads: args.threads,
        ..ReaderOptions::default()
    };
    let mut reader = Reader::new(dataset.clone(), options)?;
    let whole = (0..).zip(dataset.groups()).map(|(group, known)| Piece {
        group,
        lo: 0,
        hi: known.rows,
    });
    reader.assign(0, whole)?;
    let (mut rows, mut batches, mut commits, mut cursors) = (0_u64, 0, 0_u64, 0_u64);
    while let Some(batch) = reader.next_batch(args.batch)? {
        let column = batch.column("x").context("the set has no column x")?;
        if !args.ragged {
            column.width.context("the rows of x differ in size")?;
        }
        rows += batch.rows() as u64;
        batches += 1;
        if batches % args.commit_every == 0 {
            commits += 1;
            cursors += reader.progress().len() as u64;
        }
    }
    let us = (processor_us()? - before) as f64;
    let wall = start.elapsed().as_secs_f64();
    let read = bytes_read()? - read_before;
    let report = json!({
        "rows": rows,
        "us_per_row": us / rows as f64,
        "rows_per_s": rows as f64 / wall,
        "rss_mib": peak_mib()?,
        "read_bytes": read,
        "decompressed_bytes": reader.bytes_decompressed(),
        "cursors_per_commit": cursors as f64 / commits.max(1) as f64,
    });
    println!("{report}");
    Ok(())
}

/// Microseconds of processor time of this process.
fn processor_us() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(usage.user_time().num_microseconds() + usage.system_time().num_microseconds())
}

/// Bytes that this process has read by system calls, from the page cache or from a disk.
fn bytes_read() -> Result<u64> {
    let counters = std::fs::read_to_string("/proc/self/io")?;
    let read = counters
        .lines()
        .find_map(|line| line.strip_prefix("rchar: "));
    Ok(read.context("no rchar")?.trim().parse()?)
}

/// Peak resident memory in MiB. Not from getrusage, which includes the parent's memory before the
/// exec.
fn peak_mib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak
        .and_then(|peak| peak.trim().strip_suffix(" kB"))
        .context("no VmHWM")?;
    Ok(kib.parse::<u64>()? / 1024)
}

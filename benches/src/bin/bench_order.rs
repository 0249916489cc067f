//! Measures the two orders of a data set: the first batch of a billion rows, and an epoch with
//! limited memory.
//!
//! The billion rows are one small file under many names. Its column is constant, so only the
//! footers grow with the number of rows. The time runs from opened footers to the first batch:
//! reader, round and rows of a worker. The processor time of all threads is the better figure on a
//! busy machine. It includes row groups that are decoded ahead.
//!
//! The epoch has rows of 128 float32 in row groups of 4,096, as many stripes as row groups, one
//! worker and two threads. It measures the processor time of all threads, the rate, and roughly how
//! often row groups were decoded. The last line of each part is JSON.
//!
//! `bench_order first|epoch`

use std::{
    fs::{self, File},
    num::NonZeroU32,
    path::Path,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field};
use clap::Parser;
use elasticrun_core::random::Random;
use elasticrun_data::{
    Dataset, ReaderOptions,
    elastic::{Elastic, ElasticOptions},
};
use elasticrun_ledger::ReadOrder;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};
use serde_json::json;

#[derive(Parser)]
enum Options {
    /// The first batch of a billion rows.
    First {
        /// Rows of a row group.
        #[arg(long, default_value_t = 65_536)]
        group: usize,
        /// Row groups of a file.
        #[arg(long, default_value_t = 120)]
        groups: usize,
        /// Files.
        #[arg(long, default_value_t = 128)]
        files: usize,
        /// Rows of a worker at a step.
        #[arg(long, default_value_t = 64)]
        batch: u32,
        /// First batches of each kind; the median counts.
        #[arg(long, default_value_t = 9)]
        trials: usize,
    },
    /// An epoch under budgets of memory.
    Epoch {
        /// Rows.
        #[arg(long, default_value_t = 400_000)]
        rows: usize,
        /// Budgets, in MiB.
        #[arg(long, value_delimiter = ',', default_value = "512,64,32,16,8")]
        memory_mib: Vec<u64>,
    },
}

fn main() -> Result<()> {
    match Options::parse() {
        Options::First {
            group,
            groups,
            files,
            batch,
            trials,
        } => first(group, groups, files, batch, trials),
        Options::Epoch { rows, memory_mib } => epoch(rows, &memory_mib),
    }
}

fn options(order: ReadOrder, batch: u32, memory: u64) -> Result<ElasticOptions> {
    Ok(ElasticOptions {
        batch: NonZeroU32::new(batch).context("a batch has rows")?,
        weight: 1,
        order,
        reader: ReaderOptions {
            threads: 2,
            memory,
            seed: 1,
            ..ReaderOptions::default()
        },
    })
}

fn first(group: usize, groups: usize, files: usize, batch: u32, trials: usize) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let constant: ArrayRef = Arc::new(Int64Array::from(vec![7; group]));
    let one = directory.path().join("part-0.parquet");
    write(
        &one,
        &RecordBatch::try_from_iter([("x", constant)])?,
        groups,
    )?;
    for number in 1..files {
        fs::hard_link(
            &one,
            directory.path().join(format!("part-{number}.parquet")),
        )?;
    }
    let began = Instant::now();
    let dataset = Arc::new(Dataset::open_local([directory.path()])?);
    let open_ms = ms(began);
    println!(
        "{} rows in {} row groups of {files} files: footers read in {open_ms:.0} ms",
        dataset.rows(),
        dataset.groups().len()
    );
    let mut report = json!({ "bench": "first_batch", "rows": dataset.rows(), "open_ms": open_ms });
    for workers in [1, 8, 64] {
        for (name, order, rows) in [
            ("local", ReadOrder::default(), batch),
            (
                "deterministic",
                ReadOrder::Deterministic(5040),
                batch * workers,
            ),
        ] {
            let (mut times, mut processor) = (Vec::new(), Vec::new());
            for _ in 0..trials {
                let (began, before) = (Instant::now(), processor_us()?);
                let mut data = Elastic::new(dataset.clone(), options(order, rows, 256 << 20)?)?;
                data.enter_shard(workers / 2, workers)?;
                let first = data.next_batch()?.context("there are rows")?;
                times.push(ms(began));
                processor.push((processor_us()? - before) as f64 / 1e3);
                ensure!(first.rows() == batch as usize, "{} rows", first.rows());
            }
            times.sort_by(f64::total_cmp);
            processor.sort_by(f64::total_cmp);
            let (least, median, cpu) = (times[0], times[trials / 2], processor[trials / 2]);
            println!(
                "{name:<14} {workers:>3} workers: {median:>7.1} ms, at least {least:.1} ms, {cpu:.1} ms of all processors"
            );
            report[format!("{name}_{workers}_ms")] = median.into();
            report[format!("{name}_{workers}_least_ms")] = least.into();
            report[format!("{name}_{workers}_cpu_ms")] = cpu.into();
        }
    }
    println!("{report}");
    Ok(())
}

fn epoch(rows: usize, memory_mib: &[u64]) -> Result<()> {
    const WIDTH: i32 = 128;
    const GROUP: usize = 4096;
    let directory = tempfile::tempdir()?;
    let mut random = Random::from_seed(1);
    let values: Float32Array = (0..GROUP * WIDTH as usize)
        .map(|_| Some(random.unit() as f32))
        .collect();
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let x: ArrayRef = Arc::new(FixedSizeListArray::try_new(
        item,
        WIDTH,
        Arc::new(values),
        None,
    )?);
    let groups = rows / GROUP;
    let batch = RecordBatch::try_from_iter([("x", x)])?;
    write(&directory.path().join("part.parquet"), &batch, groups)?;
    let dataset = Arc::new(Dataset::open_local([directory.path()])?);
    println!(
        "{:<14} {:>10} {:>8} {:>14} {:>12}",
        "order", "memory", "passes", "us CPU a row", "rows/s"
    );
    let local = [("local", ReadOrder::default(), 16)];
    let stripes = ReadOrder::Deterministic(groups as u32);
    let budgets = memory_mib
        .iter()
        .map(|mib| ("deterministic", stripes, *mib));
    let mut lines = Vec::new();
    for (name, order, mib) in local.into_iter().chain(budgets) {
        let mut data = Elastic::new(dataset.clone(), options(order, 1024, mib << 20)?)?;
        data.enter_shard(0, 1)?;
        let (began, before) = (Instant::now(), processor_us()?);
        let (mut read, mut passes) = (0, 0.0_f64);
        while let Some(batch) = data.next_batch()? {
            read += batch.rows() as u64;
            passes = passes.max(data.passes());
        }
        ensure!(read == dataset.rows(), "{read} rows");
        let us = (processor_us()? - before) as f64 / read as f64;
        let rate = read as f64 / began.elapsed().as_secs_f64();
        println!("{name:<14} {mib:>6} MiB {passes:>8.1} {us:>14.3} {rate:>12.0}");
        lines.push(json!({ "order": name, "memory_mib": mib, "passes": passes, "us_per_row": us, "rows_per_s": rate }));
    }
    println!(
        "{}",
        json!({ "bench": "order_epoch", "rows": dataset.rows(), "lines": lines })
    );
    Ok(())
}

/// Writes a file of `groups` row groups, each with these rows.
fn write(path: &Path, rows: &RecordBatch, groups: usize) -> Result<()> {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows.num_rows()))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, rows.schema(), Some(properties))?;
    for _ in 0..groups {
        writer.write(rows)?;
    }
    writer.close()?;
    Ok(())
}

fn ms(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// Microseconds of processor time of this process.
fn processor_us() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(usage.user_time().num_microseconds() + usage.system_time().num_microseconds())
}

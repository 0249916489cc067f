//! Compares push, pull and push-pull with plain TCP with the same framing, on this machine.
//!
//! A job of one scheduler, one server and one worker runs over loopback, beside a plain TCP client and server that send the same
//! bytes: a header of 80 bytes, a key and the values, and a header of 80 bytes as the answer. Both are measured in turn, and
//! medians count. GB/s are bytes of values in one direction. CPU seconds are those of both processes, worker and server. `sum` has
//! a server that adds values up; the others only acknowledge, as plain TCP does. Latencies are those of one request at a time.
//! With one value for a key, `sparse` is a push or pull of all keys of the server, `some` of a tenth of them, and the pushes of
//! optimizers are gradients for all.
//!
//! `bench_ps [--sizes 4KiB,64KiB,1MiB,4MiB] [--samples 5] [--sample-ms 300]`

mod ours;
mod pair;
mod plain;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use elasticrun_benches::figures::{quantile, round};
use serde_json::{Map, Value, json};

use crate::pair::{Pair, Sample};

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// Sizes of messages.
    #[arg(long, value_delimiter = ',', default_value = "4KiB,64KiB,1MiB,4MiB", value_parser = size)]
    sizes: Vec<usize>,
    /// Samples of each; the median counts.
    #[arg(long, default_value_t = 5)]
    samples: usize,
    /// Time that a sample should take.
    #[arg(long, default_value_t = 300)]
    sample_ms: u64,
    /// Numbers of keys with one value each.
    #[arg(long, value_delimiter = ',', default_value = "100000,1000000")]
    sparse: Vec<usize>,
}

#[derive(Subcommand)]
enum Role {
    /// A node of ours; started by this program.
    #[command(hide = true)]
    Node,
    /// A server of plain TCP; started by this program.
    #[command(hide = true)]
    PlainServer,
    /// A client of plain TCP; started by this program.
    #[command(hide = true)]
    PlainClient { address: String },
}

fn main() -> Result<()> {
    let options = Options::parse();
    match &options.role {
        Some(Role::Node) => ours::run(),
        Some(Role::PlainServer) => plain::serve(),
        Some(Role::PlainClient { address }) => plain::run(address),
        None => compare(&options),
    }
}

/// Requests in flight for messages of this size.
fn window(bytes: usize) -> usize {
    match bytes {
        ..=8192 => 64,
        8193..=262_144 => 16,
        _ => 4,
    }
}

/// Medians of the samples of one case.
#[derive(Clone, Copy, Default)]
struct Figures {
    gb_per_s: f64,
    cpu_s_per_gb: f64,
    us: f64,
}

fn figures(samples: &[Sample], bytes: usize) -> Figures {
    let median = |each: &dyn Fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(each).collect();
        quantile(&mut values, 0.5).unwrap_or(f64::NAN)
    };
    let gb = |sample: &Sample| sample.count as f64 * bytes as f64 / 1e9;
    Figures {
        gb_per_s: median(&|sample| gb(sample) / sample.seconds),
        cpu_s_per_gb: median(&|sample| sample.cpu_seconds / gb(sample)),
        us: median(&|sample| sample.median_us),
    }
}

fn compare(options: &Options) -> Result<()> {
    let mut json = Map::new();
    json.insert("bench".to_owned(), json!("ps"));
    let mut ours = Pair::ours()?;
    let mut plain = Pair::plain()?;
    println!(
        "{:22} {:>9} {:>9} {:>6} {:>11} {:>11} {:>6} {:>9} {:>9} {:>6}",
        "", "GB/s", "TCP", "ratio", "CPU-s/GB", "TCP", "ratio", "us", "TCP", "ratio"
    );
    for &bytes in &options.sizes {
        for operation in ["push", "pull", "pushpull"] {
            let mut row = [Figures::default(); 3];
            for (window, latency) in [(window(bytes), false), (1, true)] {
                let commands = [
                    operation.to_owned(),
                    operation.to_owned(),
                    format!("sum-{operation}"),
                ];
                let mut samples: [Vec<Sample>; 3] = Default::default();
                for turn in 0..=options.samples {
                    for (index, command) in commands.iter().enumerate() {
                        let pair = if index == 1 { &mut plain } else { &mut ours };
                        let sample = pair.measure(command, bytes, window, options.sample_ms)?;
                        // The first one warms up.
                        if turn > 0 {
                            samples[index].push(sample);
                        }
                    }
                }
                for (row, samples) in row.iter_mut().zip(&samples) {
                    let found = figures(samples, bytes);
                    match latency {
                        true => row.us = found.us,
                        false => *row = found,
                    }
                }
            }
            print_row(operation, bytes, &row, &mut json);
        }
    }
    println!(
        "{:22} {:>12} {:>18}",
        "one value for a key", "ns for a key", "CPU ns for a key"
    );
    for &keys in &options.sparse {
        let optimizers = ours::OPTIMIZERS.iter().map(|name| format!("{name}-push"));
        let sums = ["sparse-push", "sparse-pull", "some-push", "some-pull"].map(str::to_owned);
        for operation in sums.into_iter().chain(optimizers) {
            // "some" reads and writes a tenth of the keys of a store.
            if operation == "some-push" {
                ours.measure("sparse-push", keys * 10, 1, 1)?;
            }
            let mut samples = Vec::new();
            for turn in 0..=options.samples {
                let sample = ours.measure(&operation, keys, 1, options.sample_ms)?;
                if turn > 0 {
                    samples.push(sample);
                }
            }
            // A key in place of a byte: seconds for 10^9 keys are nanoseconds for a key.
            let found = figures(&samples, keys);
            let (wall, cpu) = (round(1.0 / found.gb_per_s), round(found.cpu_s_per_gb));
            println!(
                "{:22} {wall:>12.2} {cpu:>18.2}",
                format!("{operation} {keys}")
            );
            let name = format!("{}_{keys}", operation.replace('-', "_"));
            json.insert(format!("{name}_ns_per_key"), json!(wall));
            json.insert(format!("{name}_cpu_ns_per_key"), json!(cpu));
        }
    }
    // ps-lite is a build of the user; it is not run yet.
    json.insert("ps_lite".to_owned(), Value::Null);
    println!("{}", Value::Object(json));
    Ok(())
}

fn print_row(operation: &str, bytes: usize, row: &[Figures; 3], json: &mut Map<String, Value>) {
    let [ours, tcp, sum] = row;
    let size = match bytes {
        ..1_048_576 => format!("{}kib", bytes >> 10),
        _ => format!("{}mib", bytes >> 20),
    };
    for (name, found, peer) in [
        (operation.to_owned(), ours, tcp),
        (format!("sum {operation}"), sum, tcp),
    ] {
        println!(
            "{:22} {:>9.3} {:>9.3} {:>6.2} {:>11.3} {:>11.3} {:>6.2} {:>9.1} {:>9.1} {:>6.2}",
            format!("{name} {size}"),
            found.gb_per_s,
            peer.gb_per_s,
            found.gb_per_s / peer.gb_per_s,
            found.cpu_s_per_gb,
            peer.cpu_s_per_gb,
            found.cpu_s_per_gb / peer.cpu_s_per_gb,
            found.us,
            peer.us,
            found.us / peer.us,
        );
    }
    for (name, found) in [("", ours), ("tcp_", tcp), ("sum_", sum)] {
        let key = format!("{name}{operation}_{size}");
        json.insert(format!("{key}_gb_per_s"), json!(round(found.gb_per_s)));
        json.insert(
            format!("{key}_cpu_s_per_gb"),
            json!(round(found.cpu_s_per_gb)),
        );
        json.insert(format!("{key}_us"), json!(round(found.us)));
    }
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

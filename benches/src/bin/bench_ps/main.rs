//! Compares push, pull and push-pull with plain TCP with the same framing, and with ps-lite, on this machine.
//!
//! A job of one scheduler, one server and one worker runs over loopback, beside a plain TCP client and server that send the same
//! bytes: a header of 80 bytes, a key and the values, and a header of 80 bytes as the answer. `PS_LITE_DIR` may name a build of
//! ps-lite, which then runs the same job. Two more jobs, of ours and of ps-lite, run with `DMLC_LOCAL=1`: ours exchanges payloads in
//! shared memory then. All are measured in turn, and medians count. GB/s are bytes of values in one direction. CPU seconds are those of both processes, worker and server. `sum`
//! has a server that adds values up; the others only acknowledge, as plain TCP does. Latencies are those of one request at a time.
//! With one value for a key, `sparse` is a push or pull of all keys of the server, `some` of a tenth of them, and the pushes of
//! optimizers are gradients for all.
//!
//! `bench_ps [--sizes 4KiB,64KiB,1MiB,4MiB] [--samples 5] [--sample-ms 300] [--sparse 100000,1000000]`

mod dense;
mod figures;
mod ours;
mod pair;
mod plain;
mod pslite;
mod sparse;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use serde_json::{Map, Value, json};

use crate::{dense::Contender, pair::Pair, pslite::PsLite};

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

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.role {
        Some(Role::Node) => ours::run(),
        Some(Role::PlainServer) => plain::serve(),
        Some(Role::PlainClient { address }) => plain::run(address),
        None => compare(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_ps: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<()> {
    let mut json = Map::new();
    json.insert("bench".to_owned(), json!("ps"));
    let build = PsLite::from_env()?;
    let start_pslite = |local| {
        let start = |build| Pair::pslite(build, local);
        build.as_ref().map(start).transpose()
    };
    let (mut ours, mut plain, mut pslite) =
        (Pair::ours(false)?, Pair::plain()?, start_pslite(false)?);
    let mut contenders = vec![
        Contender::new("ours", "", &mut ours).with_sums(),
        Contender::new("TCP", "tcp_", &mut plain),
    ];
    let peer = pslite.as_mut();
    contenders.extend(peer.map(|pair| Contender::new("ps-lite", "pslite_", pair).with_sums()));
    dense::compare("loopback", &mut contenders, options, &mut json)?;

    let (mut local, mut pslite_local) = (Pair::ours(true)?, start_pslite(true)?);
    let mut contenders = vec![Contender::new("ours", "local_", &mut local)];
    let peer = pslite_local.as_mut();
    contenders.extend(peer.map(|pair| Contender::new("ps-lite", "local_pslite_", pair)));
    let title = "one host, DMLC_LOCAL=1 (shared memory)";
    dense::compare(title, &mut contenders, options, &mut json)?;

    sparse::compare(&mut ours, pslite.as_mut(), options, &mut json)?;
    let about = pslite.as_ref().map(|pair| {
        // What follows "ready".
        let push_pull = pair.greeting().split_once(' ').unwrap_or_default().1;
        println!("a push-pull of this ps-lite is: {push_pull}");
        json!({ "push_pull": push_pull })
    });
    json.insert("ps_lite".to_owned(), about.unwrap_or(Value::Null));
    println!("{}", Value::Object(json));
    Ok(())
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

//! `bench-notice`: from a change of the host list until all workers have left their round.
//!
//! A job of four hosts with one worker each follows a file by the bundled plugin `file`, which
//! pushes inotify events. A trial removes a host from the file. The time runs from before the
//! rename until the last worker has left the round, at the common commit. Then the host is added
//! again. A round grows only when its new workers wait, so that time runs from the `run()` of the
//! new worker.

mod hosts;
mod worker;

use std::{path::PathBuf, thread, time::Duration};

use clap::Parser;
use elasticrun_benches::{
    Job, Random, SharedPage,
    figures::{print, print_head, quantile},
    shared_page::now,
};
use hosts::Hosts;
use serde::Serialize;

#[derive(Parser, Debug)]
struct Options {
    /// Hosts that are taken out and put back.
    #[arg(long, default_value_t = 100)]
    trials: usize,
    /// Hosts of one worker each.
    #[arg(long, default_value_t = 4)]
    hosts: u32,
    /// Keep the driver's log in this file.
    #[arg(long)]
    log: Option<PathBuf>,
}

/// The last line of the output.
#[derive(Serialize)]
struct JsonReport {
    bench: &'static str,
    hosts: u32,
    step_ms: f64,
    trials: usize,
    removal_median_ms: Option<f64>,
    removal_p99_ms: Option<f64>,
    removal_max_ms: Option<f64>,
    growth_median_ms: Option<f64>,
    growth_p99_ms: Option<f64>,
    growth_max_ms: Option<f64>,
}

fn main() -> anyhow::Result<()> {
    if let Some(options) = worker::Options::from_environment() {
        return worker::main(&options);
    }
    let options = Options::parse();
    let directory = tempfile::tempdir()?;
    let hosts = Hosts::create(directory.path(), options.hosts)?;
    let page = tempfile::Builder::new()
        .prefix("elasticrun-notice.")
        .tempfile_in("/dev/shm")?;
    let shared_page = SharedPage::create(page.as_file(), options.hosts)?;
    let flags = hosts.flags();
    println!("elasticrun {} WORKER", flags.join(" "));
    println!("steps that wait 1 ms, one allreduce of 4 KiB and one commit a step; times in ms\n");
    let variables = [(worker::PAGE, page.path().as_os_str())];
    let job = Job::start(&flags, &variables, options.log.as_deref())?;
    let all: Vec<u32> = (0..options.hosts).collect();
    let mut random = Random::new()?;
    let (mut removals, mut growths) = (Vec::new(), Vec::new());
    let since = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    while removals.len() < options.trials {
        let round = shared_page.wait_steady(&job)?;
        // A random delay, so that trials are not in step with timers of the driver or the plugin.
        thread::sleep(Duration::from_micros(random.below(20_000)));
        if shared_page.steady() != Some(round) {
            continue;
        }
        let gone = random.below(u64::from(options.hosts)) as u32;
        let staying: Vec<u32> = all.iter().copied().filter(|host| *host != gone).collect();
        let written = now();
        hosts.write(&staying)?;
        removals.push(since(written, shared_page.wait_left(round, &all, &job)?));
        let smaller = shared_page.wait_training(&staying, &job)?;
        hosts.write(&all)?;
        let left = shared_page.wait_left(smaller, &staying, &job)?;
        growths.push(since(shared_page.entered(gone), left));
    }
    shared_page.wait_steady(&job)?;
    shared_page.stop();
    job.end()?;
    print_head();
    print("host removed: file to all left", &mut removals);
    print("host added: newcomer to all left", &mut growths);
    let report = JsonReport {
        bench: "notice",
        hosts: options.hosts,
        step_ms: worker::STEP.as_secs_f64() * 1e3,
        trials: removals.len(),
        removal_median_ms: quantile(&mut removals, 0.5),
        removal_p99_ms: quantile(&mut removals, 0.99),
        removal_max_ms: quantile(&mut removals, 1.0),
        growth_median_ms: quantile(&mut growths, 0.5),
        growth_p99_ms: quantile(&mut growths, 0.99),
        growth_max_ms: quantile(&mut growths, 1.0),
    };
    println!("\n{}", serde_json::to_string(&report)?);
    Ok(())
}

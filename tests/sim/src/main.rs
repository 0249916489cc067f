//! `elasticrun-sim`: runs many seeds to find a violation, or one seed to trace it.

#![forbid(unsafe_code)]

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use clap::Parser;
use elasticrun_sim::{Detail, Report, run_seed, run_seeds};

/// Simulates jobs of elasticrun and checks their invariants.
#[derive(Debug, Parser)]
#[command(name = "elasticrun-sim")]
struct Args {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed, or the only one with --trace.
    #[arg(long)]
    seed: Option<u64>,
    /// Print all events of one seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Number of threads; default: all cores.
    #[arg(long)]
    threads: Option<usize>,
    /// Plant each known mistake into the core and search for it in at most --seeds seeds; all must be found.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutants: bool,
    /// With --mutants: only those whose name contains this text.
    #[cfg(feature = "mutants")]
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.trace {
        let report = run_seed(args.seed.unwrap_or(0), Detail::Print);
        println!("{}", describe(&report));
        return code(report.violation.is_none());
    }
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    #[cfg(feature = "mutants")]
    if args.mutants {
        return look_for_mutants(&args, threads);
    }
    let (began, shown) = (Instant::now(), AtomicU64::new(0));
    let progress = |done: u64, found: usize| {
        let second = began.elapsed().as_secs() / 5;
        if shown.fetch_max(second, Ordering::Relaxed) < second {
            eprintln!("{done} of {} seeds, {found} violations", args.seeds);
        }
    };
    let summary = run_seeds(args.seed.unwrap_or(0), args.seeds, threads, progress);
    for report in &summary.violations {
        println!("{}", describe(report));
    }
    let outcomes: Vec<_> = summary
        .outcomes
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    println!(
        "{} events, {} rounds, {} epochs of data, outcomes: {}; hash {:016x}",
        summary.events,
        summary.rounds,
        summary.epochs,
        outcomes.join(", "),
        summary.hash
    );
    let seconds = summary.took.as_secs_f64();
    println!(
        "{} seeds, {} violations, {seconds:.1} s, {:.0} seeds/s",
        summary.seeds,
        summary.violations.len(),
        summary.seeds as f64 / seconds
    );
    code(summary.violations.is_empty())
}

/// Prints for each mistake how many seeds it takes to find it.
#[cfg(feature = "mutants")]
fn look_for_mutants(args: &Args, threads: usize) -> ExitCode {
    use elasticrun_core::mutant::Mutant;
    let named = |mutant: &Mutant| format!("{mutant:?}").contains(&args.only);
    let mutants: Vec<_> = Mutant::ALL.iter().copied().filter(named).collect();
    let print = |sighting: &elasticrun_sim::Sighting| {
        let (mutant, breaks) = (sighting.mutant, sighting.mutant.breaks().join(" "));
        let (name, seeds) = (format!("{mutant:?}"), args.seeds);
        match sighting.seen.as_ref() {
            Some(report) => {
                let by = report.violation.as_ref().map_or("", |seen| seen.invariant);
                println!(
                    "{name:24} {breaks:12} seen by {by} after {} seeds",
                    report.seed + 1
                );
            }
            None => println!("{name:24} {breaks:12} NOT SEEN in {seeds} seeds"),
        }
    };
    let all = elasticrun_sim::sightings(&mutants, args.seeds, threads, print);
    let unseen = all
        .iter()
        .filter(|sighting| sighting.seen.is_none())
        .count();
    println!("{} mistakes, {unseen} not seen", all.len());
    code(unseen == 0)
}

fn describe(report: &Report) -> String {
    let outcome = report.outcome.as_deref().unwrap_or("not ended");
    let ran = format!(
        "seed {}: {} events, {} rounds, {:.3} s, {outcome}, hash {:016x}",
        report.seed,
        report.events,
        report.rounds,
        report.took.as_secs_f64(),
        report.hash
    );
    match &report.violation {
        None => ran,
        Some(violation) => format!(
            "{ran}\n  {} violated: {}\n  replay with: cargo run --release -p elasticrun-sim -- --seed {} --trace",
            violation.invariant, violation.what, report.seed
        ),
    }
}

fn code(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

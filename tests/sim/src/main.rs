//! `elasticrun-sim`: runs many seeds to find a violation, or one seed to trace or shrink it.

#![forbid(unsafe_code)]

use std::{
    error::Error,
    panic,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use clap::Parser;
use elasticrun_sim::{
    Detail, Report, run_seeds, run_simplified,
    shrink::{Drawn, Progress, Simplification, shrink},
};

/// Simulates jobs of elasticrun and checks their invariants.
#[derive(Debug, Parser)]
#[command(name = "elasticrun-sim")]
#[command(
    after_help = "Exit codes: 0 no invariant is violated, 1 one is violated, 2 a wrong value."
)]
struct Args {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed, or the only one with --trace, --shrink, --faults or --less.
    #[arg(long)]
    seed: Option<u64>,
    /// Print all events of one seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Search for the fewest hardships of one seed that still violate the same invariant.
    #[arg(long, requires = "seed", conflicts_with = "trace")]
    shrink: bool,
    /// Only these planned faults of one seed, by their numbers in the order of its draws, or `none`.
    #[arg(long, requires = "seed", value_name = "N,...")]
    faults: Option<String>,
    /// Less of these amounts of one seed, for example ambushes=0,steps=7.
    #[arg(long, requires = "seed", value_name = "NAME=N,...")]
    less: Option<String>,
    /// Number of threads; default: all cores.
    #[arg(long)]
    threads: Option<usize>,
    /// Plant each known mistake into the core and search for it in at most --seeds seeds; all must be found.
    #[cfg(feature = "mutants")]
    #[arg(long, conflicts_with_all = ["trace", "shrink", "faults", "less"])]
    mutants: bool,
    /// With --mutants: only those whose name contains this text.
    #[cfg(feature = "mutants")]
    #[arg(long, default_value = "")]
    only: String,
    /// Plant this known mistake into the core.
    #[cfg(feature = "mutants")]
    #[arg(long, value_name = "NAME", conflicts_with = "mutants")]
    plant: Option<String>,
}

impl Args {
    /// The mistake that is planted.
    fn planted(&self) -> Option<&str> {
        #[cfg(feature = "mutants")]
        return self.plant.as_deref();
        #[cfg(not(feature = "mutants"))]
        None
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    #[cfg(feature = "mutants")]
    if let Some(name) = &args.plant
        && !elasticrun_core::mutant::plant_everywhere(name)
    {
        eprintln!("error: no mistake has the name `{name}`; --mutants names all");
        return ExitCode::from(2);
    }
    let one = args.trace || args.shrink || args.faults.is_some() || args.less.is_some();
    if let Some(seed) = args.seed.filter(|_| one) {
        return one_seed(&args, seed).unwrap_or_else(|error| {
            eprintln!("error: {error}");
            ExitCode::from(2)
        });
    }
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    #[cfg(feature = "mutants")]
    if args.mutants {
        return look_for_mutants(&args, threads);
    }
    many_seeds(&args, threads)
}

fn many_seeds(args: &Args, threads: usize) -> ExitCode {
    let pace = Pace::default();
    let told = AtomicU64::new(0);
    let progress = |done: u64, found: &[Report]| {
        // A run that is stopped has named its violations.
        let before = told.fetch_max(found.len() as u64, Ordering::Relaxed);
        for report in found.iter().skip(before as usize) {
            eprintln!("seed {} violates an invariant", report.seed);
        }
        if pace.is_due() {
            eprintln!("{done} of {} seeds, {} violations", args.seeds, found.len());
        }
    };
    let summary = run_seeds(args.seed.unwrap_or(0), args.seeds, threads, progress);
    for report in &summary.violations {
        println!("{}", describe(args, report, &Simplification::default()));
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
    if let Some(report) = summary.violations.first() {
        println!(
            "shrink one with: {} --seed {} --shrink",
            program(args.planted()),
            report.seed
        );
    }
    code(summary.violations.is_empty())
}

/// Runs or shrinks one seed.
fn one_seed(args: &Args, seed: u64) -> Result<ExitCode, Box<dyn Error>> {
    let start = Simplification::parse(args.faults.as_deref(), args.less.as_deref())?;
    let drawn = Drawn::from_seed(seed);
    drawn.check(&start)?;
    if args.shrink {
        return Ok(shrink_seed(args, seed, &drawn, &start));
    }
    let detail = match args.trace {
        true => Detail::Print,
        false => Detail::Brief,
    };
    let report = run_simplified(seed, detail, &start);
    println!("{}", describe(args, &report, &start));
    Ok(code(report.violation.is_none()))
}

fn shrink_seed(args: &Args, seed: u64, drawn: &Drawn, start: &Simplification) -> ExitCode {
    let pace = Pace::default();
    let progress = |now: Progress| {
        if pace.is_due() {
            let Progress {
                runs,
                faults,
                events,
            } = now;
            eprintln!("{runs} runs, {faults} planned faults and {events} events remain");
        }
    };
    // A panic that is searched for comes up in many of the runs.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let run = |simpler: &Simplification| run_simplified(seed, Detail::Brief, simpler);
    let shrunk = shrink(drawn, start, run, progress);
    panic::set_hook(hook);
    match &shrunk {
        None => println!("seed {seed} violates no invariant: there is nothing to shrink"),
        Some(shrunk) => {
            let simplification = &shrunk.simplification;
            println!("{shrunk}\n  {}", replay(args, seed, simplification));
        }
    }
    code(shrunk.is_none())
}

/// Decides when a line about long work is due: every few seconds.
struct Pace {
    began: Instant,
    shown: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            shown: AtomicU64::new(0),
        }
    }
}

impl Pace {
    fn is_due(&self) -> bool {
        let now = self.began.elapsed().as_secs() / 5;
        self.shown.fetch_max(now, Ordering::Relaxed) < now
    }
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
    let first = all
        .iter()
        .find_map(|sighting| Some((sighting.mutant, sighting.seen.as_ref()?.seed)));
    if let Some((mutant, seed)) = first {
        let program = program(Some(&format!("{mutant:?}")));
        println!("shrink one with: {program} --seed {seed} --shrink");
    }
    code(unseen == 0)
}

fn describe(args: &Args, report: &Report, simplification: &Simplification) -> String {
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
            "{ran}\n  {} violated: {}\n  {}",
            violation.invariant,
            violation.what,
            replay(args, report.seed, simplification)
        ),
    }
}

fn replay(args: &Args, seed: u64, simplification: &Simplification) -> String {
    let options = match simplification.to_string() {
        all if all.is_empty() => all,
        options => format!(" {options}"),
    };
    let program = program(args.planted());
    format!("replay with: {program} --seed {seed}{options} --trace")
}

/// The command that runs this program with a mistake planted.
fn program(planted: Option<&str>) -> String {
    let program = "cargo run --release -p elasticrun-sim";
    match planted {
        Some(name) => format!("{program} --features mutants -- --plant {name}"),
        None => format!("{program} --"),
    }
}

fn code(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

//! `elasticrun-sim-rendezvous`: runs many seeds of the dynamic rendezvous to find a violation, or traces one seed.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use elasticrun_sim::{Detail, rendezvous};

/// Simulates the dynamic rendezvous and checks its invariants.
#[derive(Debug, Parser)]
#[command(
    after_help = "Exit codes: 0 no invariant is violated, 1 one is violated, 2 a wrong value."
)]
struct Args {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed, or the only one with --trace.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print all events of one seed.
    #[arg(long)]
    trace: bool,
    /// Plant each known mistake into the core and search for it in at most --seeds seeds; all must be found.
    #[cfg(feature = "mutants")]
    #[arg(long, conflicts_with = "trace")]
    mutants: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    #[cfg(feature = "mutants")]
    if args.mutants {
        return search_mutants(args.seeds);
    }
    let violated = if args.trace {
        let report = rendezvous::run_seed(args.seed, Detail::Print);
        println!("{report:?}");
        report.violation.is_some()
    } else {
        let (sum, violated) =
            rendezvous::run_seeds(args.seed..args.seed.saturating_add(args.seeds));
        println!(
            "{} events, {} rounds, {} writes, {} lost races, {} removals, {} refused, hash {:016x}",
            sum.events, sum.rounds, sum.writes.0, sum.writes.1, sum.removals, sum.spared, sum.hash
        );
        if let Some(report) = &violated {
            println!("seed {}: {:?}", report.seed, report.violation);
        }
        violated.is_some()
    };
    ExitCode::from(u8::from(violated))
}

#[cfg(feature = "mutants")]
fn search_mutants(seeds: u64) -> ExitCode {
    let sightings = rendezvous::sightings(seeds);
    for sighting in &sightings {
        let seen = sighting.seen.as_ref();
        let seen = seen.and_then(|report| Some((report.seed, report.violation.as_ref()?)));
        let (mutant, breaks) = (sighting.mutant, sighting.mutant.breaks().join(" "));
        match seen {
            Some((seed, violation)) => println!(
                "{mutant:?} ({breaks}): seed {seed}, {}: {}",
                violation.invariant, violation.what
            ),
            None => println!("{mutant:?} ({breaks}): not found"),
        }
    }
    ExitCode::from(u8::from(
        sightings.iter().any(|sighting| sighting.seen.is_none()),
    ))
}

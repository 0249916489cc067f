//! A node of the tests with real processes: `elasticrun-ps-test-node SCENARIO`. The role comes from the variables of ps-lite.
//!
//! It prints what it has done, one fact a line, and ends with 0 if all was right.

mod elastic;
mod scenarios;
mod snapshots;
mod training;
mod traps;

use std::process::ExitCode;

use elasticrun_ps::{Error, Options, Postoffice};

fn main() -> ExitCode {
    let scenario = std::env::args().nth(1).unwrap_or_default();
    match run(&scenario) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::from(3)
        }
    }
}

fn run(scenario: &str) -> Result<(), Error> {
    match scenario {
        "kv" => scenarios::kv(&start()?),
        "many-keys" => scenarios::many_keys(&start()?),
        "simple" => scenarios::simple(&start()?),
        "customers" => scenarios::customers(&start()?),
        "first-millisecond" => traps::first_millisecond(),
        "keys" => traps::keys(&start()?),
        "bad-input" => traps::bad_input(&start()?),
        "priority" => traps::priority(&start()?),
        "idle" => traps::idle(&start()?),
        "replaced" => traps::replaced(&start()?),
        "late" => traps::late(&start()?),
        "asks-once" => traps::asks_once(&start()?),
        "until-lost" => traps::until_lost(&start()?),
        "optimizer" => training::optimizer(&start()?),
        "stale" => training::stale(&start()?),
        "elastic" => elastic::run(),
        "elastic-large" => elastic::large(),
        "elastic-other" => elastic::other(),
        "snapshots" => snapshots::run(),
        "barrier" => traps::barrier(&start()?),
        other => Err(Error::Options(format!("no scenario {other}"))),
    }
}

fn start() -> Result<Postoffice, Error> {
    Postoffice::start(Options::from_env()?)
}

/// Fails the scenario unless a fact holds.
fn ensure(holds: bool, fact: impl FnOnce() -> String) -> Result<(), Error> {
    match holds {
        true => Ok(()),
        false => Err(Error::Options(format!("wrong: {}", fact()))),
    }
}

//! The test worker: trains a model that reveals every lost, repeated or torn step, and misbehaves on request.
//!
//! The model is a count of steps and the sum of their numbers, so a check detects an incomplete state at once.
//! Each step's allreduce checks that all members take part and are at the same step.

mod fault;
mod meet;
mod model;
mod rows;
mod train;

use std::{env, path::PathBuf, process::ExitCode, thread, time::Duration};

use elasticrun_worker::Error;

use crate::{DIRECTORY, Event, Kind, Plan, Point, dataset, event::Writer, monotonic};
use fault::Faults;
use model::Model;
use rows::Rows;

/// The event log, and the worker's own fields of every event.
#[derive(Debug)]
pub(crate) struct Journal {
    log: Writer,
    now: Event,
}

impl Journal {
    fn write(&mut self, kind: Kind, text: impl Into<String>) {
        self.now.kind = kind;
        self.now.at = monotonic();
        self.now.text = text.into();
        self.log.write(&self.now);
    }
}

/// The whole program.
///
/// # Panics
/// When the harness did not start it, or the job breaks an invariant.
pub fn main() -> ExitCode {
    let directory = PathBuf::from(env::var_os(DIRECTORY).expect("the harness names the directory"));
    let plan = std::fs::read(directory.join("plan.json")).expect("the harness wrote a plan");
    let plan: Plan = serde_json::from_slice(&plan).expect("a plan of the harness");
    let number = |name: &str| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    let now = Event {
        at: 0,
        kind: Kind::Begin,
        pid: std::process::id(),
        host: env::var("ELASTICRUN_HOST").unwrap_or_default(),
        local_rank: number("ELASTICRUN_LOCAL_RANK"),
        generation: number("ELASTICRUN_GENERATION"),
        round: 0,
        rank: 0,
        size: 0,
        step: 0,
        text: String::new(),
    };
    let log = Writer::open(&directory.join("events")).expect("the log can be opened");
    let mut model = Model::new(
        plan.ballast,
        (plan.rows > 0).then(|| Rows::open(&directory.join(dataset::NAME))),
        Journal { log, now },
        Faults::new(plan.faults.clone(), directory.clone()),
    );
    model.journal().write(Kind::Begin, "");
    thread::sleep(Duration::from_millis(plan.import_ms));
    if let Err(error) = model.at(Point::Begin) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    let trained = elasticrun_worker::run(&mut model, |session, model| {
        train::train(session, model, &plan, &directory)
    });
    let said = trained
        .as_ref()
        .err()
        .map_or(String::new(), ToString::to_string);
    model.journal().write(Kind::Trained, said);
    let after = model.at(Point::Trained);
    match (trained, after) {
        (Ok(()), Ok(())) => ExitCode::SUCCESS,
        (Err(train::Error::Sdk(Error::Removed)), _) => ExitCode::SUCCESS,
        (Err(error), _) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        (_, Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

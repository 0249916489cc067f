//! Deterministic simulation of driver, agents and workers.
//!
//! The shipped state machines run over a simulated network, clock, discovery and scripts. They are
//! `elasticrun_core::Job`, one `elasticrun_core::agent::Machine` per host and one `elasticrun_core::worker::Machine`
//! per process. A seed decides the settings, every delay and every fault; the same seed gives the same run.
//! Invariants are checked all the time, one file each in [`invariants`]. At last the faults stop and the job must end.
//!
//! `elasticrun-sim --seeds 100000` searches for violations; `elasticrun-sim --seed S --trace` replays one.
//! `elasticrun-sim --seed S --shrink` looks for the few hardships with which the violation remains: [`shrink`].

#![forbid(unsafe_code)]

mod blame;
mod completeness;
mod fault;
mod groups;
mod history;
mod invariants;
mod listed;
mod listing;
#[cfg(feature = "mutants")]
mod mutants;
mod reference;
pub mod rendezvous;
mod rng;
mod runner;
mod scenario;
pub mod shrink;
mod trace;
mod world;

pub use fault::Strike;
#[cfg(feature = "mutants")]
pub use mutants::{Sighting, run_mutant, sightings};
pub use runner::{Report, Summary, run_seed, run_seeds, run_simplified};
pub use trace::Detail;
pub use world::Violation;

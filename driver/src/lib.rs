//! The driver of an elastic job, as a library for the binary `elasticrun` and for tests.

pub mod cli;
pub mod config;
pub mod dry_run;
pub mod exit;

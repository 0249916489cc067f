//! The driver of an elastic job, as a library for the binary `elasticrun` and for tests.
//!
//! The main loop is [`run_loop`]; [`start`] puts its parts together from [`config::Settings`].

mod addresses;
mod agents;
mod call;
pub mod cli;
pub mod clock;
pub mod config;
mod console;
pub mod control;
mod discovery;
pub mod dry_run;
mod environment;
pub mod exit;
pub mod host_agent;
mod join;
mod launch;
mod logging;
pub mod operator;
mod parent;
pub mod plugins;
pub mod python;
mod report;
pub mod run_loop;
mod signals;
pub mod spark;
pub mod start;
pub mod store;
pub mod task_service;

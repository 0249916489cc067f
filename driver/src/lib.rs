//! The driver of an elastic job, as a library for the binary `elasticrun` and for tests.
//!
//! The main loop is in [`run_loop`]. [`start`] builds its parts from [`config::Settings`].

mod addresses;
pub mod admin_socket;
mod agents;
pub mod begin;
mod call_identity;
pub mod cli;
pub mod clock;
pub mod config;
mod console;
pub mod control;
mod control_port;
mod devices;
mod discovery;
pub mod dry_run;
pub mod elected_node;
mod embedder;
mod environment;
pub mod exit;
mod former_driver;
pub mod host_agent;
pub mod inputs;
pub mod join_token;
mod join_tokens;
pub mod journal;
mod launch;
mod logging;
pub mod parameter_servers;
pub mod plugins;
pub mod python_exec;
mod recording;
mod report;
pub mod resume;
pub mod run_loop;
mod seed;
#[cfg(test)]
#[path = "../../tests/fuzz/seeds.rs"]
mod seeds;
pub mod signals;
pub mod spark_exec;
mod standbys;
pub mod start;
pub mod store;
pub mod supervise;
pub mod task_service;
pub mod torchrun_node;
mod trust;

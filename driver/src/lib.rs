//! The driver of an elastic job, as a library for the binary `elasticrun` and for tests.
//!
//! The main loop is in [`run_loop`]. [`start`] builds its parts from [`config::Settings`].

mod addresses;
pub mod admin_socket;
mod agents;
mod call_key;
pub mod cli;
pub mod clock;
pub mod config;
mod console;
pub mod control;
mod discovery;
pub mod dry_run;
mod embedder;
mod environment;
pub mod exit;
pub mod host_agent;
pub mod inputs;
mod join_token;
mod launch;
mod logging;
pub mod plugins;
pub mod python_exec;
mod report;
pub mod run_loop;
mod signals;
pub mod spark_exec;
pub mod start;
pub mod store;
pub mod task_service;

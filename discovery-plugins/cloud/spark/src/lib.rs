//! Discovery plugin `spark`: the hosts of a Spark cluster, for jobs whose agents already run there.
//!
//! With `master`, the hosts are the workers of a standalone master. With `ui`, they are those of an application's executors.
//! (A job in slots that Spark provides needs no discovery: `elasticrun --spark`.)
//!
//! ```text
//!   MASTER/json/                                 workers, their cores, GPUs and states          each poll
//!   UI/api/v1/applications                       the id of the application                      once
//!   UI/api/v1/applications/ID/environment        spark.task.cpus and its GPUs                   once
//!   UI/api/v1/applications/ID/executors          active executors, cores, GPUs                  each poll
//! ```
//!
//! # Invariants
//! - A host's id is its name or address in Spark. Agents must register under it (`--host`).
//! - Executors of one host are one host with the sum of their slots. The driver of the application does not count.
//! - Slots: the option, else GPUs if the host has any, else cores divided by those of a task.

mod application;
mod executor_resources;
mod master;
mod plugin;
mod server;

pub use plugin::{Options, Spark};

elasticrun_plugin_sdk::export_plugin!(Spark);

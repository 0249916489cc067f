//! Discovery plugin `spark`: the hosts of a Spark cluster, for jobs whose agents already run there.
//!
//! With `master` they are the workers of a standalone master, with `ui` the hosts of one application's executors. (A
//! job that Spark itself is to give slots to needs no discovery: `elasticrun --spark`.)
//!
//! ```text
//!   MASTER/json/                                 workers, their cores, GPUs and states          every poll
//!   UI/api/v1/applications                       which application this is                      once
//!   UI/api/v1/applications/ID/environment        spark.task.cpus and its GPUs                   once
//!   UI/api/v1/applications/ID/executors          executors that are alive, cores, GPUs          every poll
//! ```
//!
//! # Invariants
//! - A host's id is the name or address that Spark knows it by: agents register by it (`--host`).
//! - Executors of one host are one host with the sum of their slots; the driver of the application is none.
//! - Slots: the option, else GPUs if the host has any, else cores divided by those of a task.

mod application;
mod lent;
mod master;
mod plugin;
mod server;

pub use plugin::{Options, Spark};

elasticrun_plugin_sdk::export_plugin!(Spark);

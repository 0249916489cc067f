//! Write a discovery plugin for elasticrun: a dynamic library that says which hosts a job may use.
//!
//! A plugin is a type that implements [`Plugin`], made visible by [`export_plugin!`]:
//!
//! ```
//! use std::time::Duration;
//! use elasticrun_plugin_sdk::{Host, Manifest, Plugin, PluginError, Snapshot, serde::Deserialize};
//!
//! #[derive(Deserialize)]
//! #[serde(crate = "elasticrun_plugin_sdk::serde", deny_unknown_fields)]
//! struct Config {
//!     /// `--discovery rack:row=7` arrives here.
//!     row: u32,
//! }
//!
//! struct Rack(Config);
//!
//! impl Plugin for Rack {
//!     const MANIFEST: Manifest = Manifest {
//!         name: "rack",
//!         version: "1.0.0",
//!         license: "Apache-2.0",
//!         description: "the machines of a row in our hall",
//!         config: r#"{"type": "object", "properties": {"row": {"type": "integer"}}, "required": ["row"]}"#,
//!         ..Manifest::EMPTY
//!     };
//!     type Config = Config;
//!
//!     fn create(config: Config) -> Result<Self, PluginError> {
//!         if config.row > 9 {
//!             return Err(PluginError::bad_config("row: the hall has rows 0 to 9"));
//!         }
//!         Ok(Self(config))
//!     }
//!
//!     fn poll(&mut self, _deadline: Duration) -> Result<Snapshot, PluginError> {
//!         let name = format!("rack-{}-a", self.0.row);
//!         Ok(Snapshot::new(vec![Host { slots: Some(8), ..Host::new(name) }]))
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! In a crate whose library is named `elasticrun_plugin_rack`, with `crate-type = ["rlib", "cdylib"]`, the line
//! `elasticrun_plugin_sdk::export_plugin!(Rack);` makes `libelasticrun_plugin_rack.so`, which `--plugin-dir`
//! finds. The same crate can be linked in as well: the exported symbol carries the crate's name, so any number
//! of plugins fit into one program.
//!
//! # Invariants
//! - Nothing unwinds into the host: a panic in a plugin, also in its `drop`, is caught here and becomes an error.
//! - The table that describes a plugin is a constant; it is read before any of the plugin's code runs.
//! - A buffer is freed by the side that made it.
//! - After `destroy` the host is not called any more by [`Changed`], whichever thread still has one.
//!
//! # Not promised
//! By default a plugin has a process of its own. Where it is told to run in the driver's (`--plugin-isolation=thread`),
//! one that corrupts memory, aborts or exits takes the job with it; a stack overflow and a panic while another panic
//! unwinds are aborts.
//!
//! The C side of the same interface is `include/elasticrun_plugin.h`.

pub mod abi;
mod changed;
mod command;
mod config;
mod error;
mod export;
mod log;
mod manifest;
mod pace;
mod plugin;
pub mod slots;
pub mod text;

pub use changed::Changed;
pub use command::Command;
pub use config::from_options;
/// Hosts, and lists of them as people write them.
pub use elasticrun_hosts::{Host, HostState, SlotsFrom, Snapshot, list as hosts};
pub use error::{ErrorKind, PluginError};
#[doc(hidden)]
pub use export::{exported, is_library_of};
pub use manifest::Manifest;
pub use pace::jitter;
pub use plugin::Plugin;

/// The version of serde that [`Plugin::Config`] is read with.
pub use serde;
/// The version of tracing whose events arrive in the driver's log.
pub use tracing;

//! Write a discovery plugin for elasticrun: a dynamic library that lists the hosts that a job may use.
//!
//! A plugin is a type that implements [`Plugin`] and is exported by [`export_plugin!`]:
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
//! `elasticrun_plugin_sdk::export_plugin!(Rack);` builds `libelasticrun_plugin_rack.so`, which `--plugin-dir`
//! finds. The crate can also be linked into a program. The exported symbol has the crate's name, so that one program can link
//! several plugins.
//!
//! # Invariants
//! - No panic unwinds into the host: the SDK catches a panic of the plugin, also in its `drop`, and reports an error.
//! - The table that describes a plugin is a constant. It is read before any of the plugin's code runs.
//! - The side that allocated a buffer frees it.
//! - After `destroy`, a [`ChangeNotifier`] in any thread calls the host no more.
//!
//! # Not promised
//! By default a plugin runs in its own process. In the driver's process (`--plugin-isolation=thread`), a plugin that corrupts
//! memory, aborts or exits ends the job. A stack overflow, and a panic while another panic unwinds, are aborts.
//!
//! `include/elasticrun_plugin.h` is the same interface for C.

pub mod abi;
mod change_notifier;
mod command;
mod config;
mod error;
mod export;
mod jitter;
mod log;
mod manifest;
mod plugin;
pub mod slots;
pub mod text;

pub use change_notifier::ChangeNotifier;
/// The former name of [`ChangeNotifier`].
pub use change_notifier::ChangeNotifier as Changed;
pub use command::Command;
pub use config::from_options;
/// Hosts and host lists.
pub use elasticrun_hosts::{Host, HostState, SlotsFrom, Snapshot, list as hosts};
pub use error::{ErrorKind, PluginError};
#[doc(hidden)]
pub use export::{exported, library_matches};
pub use jitter::jitter;
pub use manifest::Manifest;
pub use plugin::Plugin;

/// The version of serde for [`Plugin::Config`].
pub use serde;
/// The version of tracing whose events go to the driver's log.
pub use tracing;

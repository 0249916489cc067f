//! Discovery plugin `static`: a list of hosts that does not change.
//!
//! Options: either `hosts` (`a:4,b:4`) or `hostfile` (a path), in the grammar of
//! [`hosts`](elasticrun_plugin_sdk::hosts). The file is read once, when the plugin is created.

#![forbid(unsafe_code)]

mod plugin;

pub use plugin::{Options, StaticHosts};

elasticrun_plugin_sdk::export_plugin!(StaticHosts);

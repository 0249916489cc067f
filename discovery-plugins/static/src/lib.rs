//! Discovery plugin `static`: a list of hosts that does not change.
//!
//! Options: `hosts` (`a:4,b:4`) or `hostfile` (a path), one of the two, in the form of
//! [`hosts`](elasticrun_plugin_sdk::hosts). The file is read once, when the plugin is made.

mod plugin;

pub use plugin::{Options, StaticHosts};

elasticrun_plugin_sdk::export_plugin!(StaticHosts);

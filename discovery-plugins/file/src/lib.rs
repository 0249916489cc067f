//! Discovery plugin `file`: the hosts in a file, which is watched for changes.
//!
//! Option: `path`, a hostfile ([`hosts`](elasticrun_plugin_sdk::hosts)). Each poll reads it. Changes are pushed at once
//! (inotify).
//!
//! # Invariants
//! - If the file is unreadable at first, the configuration is bad. Later failures are temporary, and the last good list
//!   stays valid.
//! - The plugin follows a replaced file: by a rename, or by a symbolic link in its directory.
//!
//! # Not promised
//! A poll may read a file in the middle of a write in place. Write another file and rename it. On file systems without
//! events, such as network file systems, the next poll finds the change.

#![forbid(unsafe_code)]

mod plugin;
mod watch;

pub use plugin::{Hosts, Options};

elasticrun_plugin_sdk::export_plugin!(Hosts);

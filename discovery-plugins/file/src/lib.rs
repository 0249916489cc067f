//! Discovery plugin `file`: the hosts that a file lists, now and whenever it changes.
//!
//! Option: `path`, a file in the form of a hostfile ([`hosts`](elasticrun_plugin_sdk::hosts)). It is read at each poll,
//! and a change is pushed at once: the kernel tells (inotify).
//!
//! # Invariants
//! - A file that cannot be read at first is a bad configuration; later it may be tried again, and the last good list
//!   stays meanwhile.
//! - A file that is replaced by another (renamed over it, or behind a symbolic link in its directory) is followed.
//!
//! # Not promised
//! Who writes into the file in place is read in the middle of it; write another file and rename it. On file systems
//! that tell nothing, such as those of a network, a change is seen at the next poll.

mod plugin;
mod watch;

pub use plugin::{Hosts, Options};

elasticrun_plugin_sdk::export_plugin!(Hosts);

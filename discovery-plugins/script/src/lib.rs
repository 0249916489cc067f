//! Discovery plugin `script`: runs a user's program at each poll and reads one host a line, as Horovod does.
//!
//! Option: `path`, the program. Its lines have the form of [`hosts`](elasticrun_plugin_sdk::hosts):
//! `host`, `host:slots`, `user@[::1]:4`, `#` comments; no line at all is an empty list. The order is kept.
//!
//! # Invariants
//! - No run outlives its deadline: then the program and what it started in its process group are killed.
//!   What it leaves running when it ends is killed too; only a process with a session of its own (a daemon) stays.
//! - Neither the program nor what it started in its process group outlives the job, however that ends.
//! - At most 4 MiB of output are read. Standard error is shown, its first lines, when the program fails.
//! - A failure is a bad configuration as long as the program has never worked; afterwards it may be tried again.
//!
//! # Not promised
//! A program that ends and leaves its output to a background process has said what was written by then.

mod keeper;
mod plugin;
mod run;

pub use plugin::{Options, Script};

elasticrun_plugin_sdk::export_plugin!(Script);

//! Discovery plugin `script`: runs a user's program at each poll and reads one host per line, as Horovod does.
//!
//! Option: `path`, the program. Its lines have the form of [`hosts`](elasticrun_plugin_sdk::hosts):
//! `host`, `host:slots`, `user@[::1]:4`, `#` comments. No line gives an empty list. The order is kept.
//!
//! # Invariants
//! - No run outlives its deadline: at the deadline its process group is killed. The group is also killed after the end of the
//!   program. Only a process in its own session (a daemon) survives.
//! - Neither the program nor its process group outlives the job, however the job ends.
//! - At most 4 MiB of output are read. If the program fails, the message has the first lines of its standard error.
//! - Until the first success a failure is a bad configuration. Afterwards it is temporary.
//!
//! # Not promised
//! Output that a background process writes after the end of the program is ignored.

mod plugin;
mod run;

pub use plugin::{Options, Script};

elasticrun_plugin_sdk::export_plugin!(Script);

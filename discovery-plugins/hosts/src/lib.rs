//! Hosts of discovery: answers of plugins, host lists, and the merge of several sources.
//!
//! The driver's core, the plugin SDK and the loader share these types, so this crate is pure: it uses no clock, no files and
//! no sockets.

#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
pub mod any_input;
mod host;
pub mod list;
mod merge;
pub mod millis;
mod snapshot;

pub use host::{Host, HostState, SlotsFrom};
pub use merge::{merge, merge_hosts};
pub use snapshot::Snapshot;

//! Hosts as discovery describes them: what plugins answer with, what people write, and one list of several sources.
//!
//! The driver's core, the plugin SDK and the loader share these types, so this crate does nothing but compute: no
//! clock, no files, no sockets.

mod host;
pub mod list;
mod merge;
pub mod millis;
mod snapshot;

pub use host::{Host, HostState, SlotsFrom};
pub use merge::{merge, merge_hosts};
pub use snapshot::Snapshot;

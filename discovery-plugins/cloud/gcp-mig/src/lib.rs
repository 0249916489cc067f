//! Discovery plugin `gcp-mig`: the instances of a Google Cloud managed instance group, zonal or regional.
//!
//! ```text
//!   listManagedInstances    who is a member, what the group is doing with it    every poll
//!   instances.get           addresses, accelerators, label, spot                a new instance (many: list of the zone)
//!   machineTypes.get        accelerators that belong to a type                  once a type
//! ```
//! It speaks the REST interface of Compute Engine itself: four reads, each with what is left of the poll's deadline.
//!
//! # Invariants
//! - A host's id has the instance's number in it: an instance that is made anew under the old name is another host.
//! - Ready means: running, and the group does nothing with it that takes it away.
//! - Nothing is retried: a failure goes to the job, which backs off.
//! - An instance that goes between two calls is left out, and is no failure.
//! - A token is sent over TLS only. An endpoint of `http://` (a stand-in) gets none.

mod access;
mod compute;
mod failure;
mod group;
mod host;
mod options;
mod plugin;

pub use options::{AddressKind, Options};
pub use plugin::GcpMig;

elasticrun_plugin_sdk::export_plugin!(GcpMig);

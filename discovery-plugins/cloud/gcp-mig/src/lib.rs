//! Discovery plugin `gcp-mig`: the instances of a Google Cloud managed instance group, zonal or regional.
//!
//! ```text
//!   listManagedInstances    members and the current actions of the group    each poll
//!   instances.get           addresses, accelerators, label, spot            per new instance (for many: list of the zone)
//!   machineTypes.get        accelerators of a machine type                  once per type
//! ```
//! The crates google-cloud-auth and google-cloud-compute-v1 send the requests, all within the deadline of the poll.
//!
//! # Invariants
//! - A host's id contains the instance's number, so that an instance that is recreated under the same name is another host.
//! - Ready means: running, and no action of the group removes it.
//! - A poll is repeated once, with new credentials, if those of an earlier poll have failed. Else nothing is retried. The job
//!   backs off after a failure.
//! - An instance that disappears between two calls is left out, and is no failure.
//! - A token is sent only over TLS. An endpoint of `http://` (a test server) gets none.

mod access;
mod clients;
mod compute;
mod error;
mod group;
mod host;
mod model;
mod options;
mod pace;
mod plugin;

pub use options::{AddressKind, Options};
pub use plugin::GcpMig;

elasticrun_plugin_sdk::export_plugin!(GcpMig);

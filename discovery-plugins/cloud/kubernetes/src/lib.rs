//! Discovery plugin `kubernetes`: the pods that a label selector chooses.
//!
//! A list of the pods is a poll. Beside it a thread watches them and only says that something has changed, and then
//! the next poll comes at once; so what a watch misses (it expires, the connection ends) is found late and not never.
//! Agents run in the pods and register themselves: docs/kubernetes.md, examples/kubernetes.
//!
//! # Invariants
//! - A host's id has the pod's uid in it: a pod that is made anew under the old name is another host.
//! - Ready means: the pod runs and is ready, and nobody has asked for its deletion.
//! - A poll is back within its deadline. The watch ends with the plugin.

mod cluster;
mod failure;
mod host;
mod options;
mod plugin;
mod watch;

pub use options::Options;
pub use plugin::Kubernetes;

elasticrun_plugin_sdk::export_plugin!(Kubernetes);

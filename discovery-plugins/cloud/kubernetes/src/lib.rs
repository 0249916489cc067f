//! Discovery plugin `kubernetes`: the pods that a label selector chooses.
//!
//! Each poll lists the pods. In addition, a thread watches them and requests a poll after each change. Regular polls find
//! changes that the watch misses, as when it expires or its connection ends. Agents run in the pods and register themselves:
//! docs/kubernetes.md, examples/kubernetes.
//!
//! # Invariants
//! - A host's id contains the pod's uid, so that a pod that is recreated under the same name is another host.
//! - Ready means: the pod is running and ready, and is not being deleted.
//! - A poll returns within its deadline. The watch ends with the plugin.

mod cluster;
mod error;
mod host;
mod options;
mod plugin;
mod proxy;
mod watch;

pub use options::Options;
pub use plugin::Kubernetes;

elasticrun_plugin_sdk::export_plugin!(Kubernetes);

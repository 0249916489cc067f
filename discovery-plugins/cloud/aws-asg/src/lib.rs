//! Discovery plugin `aws-asg`: the instances of one or more EC2 Auto Scaling groups.
//!
//! ```text
//!   DescribeAutoScalingGroups    members and their lifecycle states             each poll
//!   DescribeInstances            addresses, EC2's state, tags, spot             for new instances and old answers
//!   DescribeInstanceTypes        accelerators                                   once per type
//!   DescribeLifecycleHooks       duration of Terminating:Wait                   once per group with a waiting member
//! ```
//! A poll without changes is one call. Options: see [`Options`].
//!
//! # Invariants
//! - A host's id is its instance's id. A new instance with the address of an old one is another host.
//! - Ready means: InService and Healthy, and EC2 reports it as running.
//! - A poll returns within its deadline.
//! - No call is repeated in a poll, and none is retried. The job backs off after a failure.
//! - Only calls for a termination hook change anything, and only with `complete_hook`.
//!
//! # Not promised
//! EC2's state of an instance that is InService may be [half a minute](instances::MAX_AGE) old.

mod account;
mod error;
mod groups;
mod hooks;
mod host;
mod http;
mod instances;
mod options;
mod pace;
mod plugin;
mod types;

pub use options::{AddressKind, Options};
pub use plugin::AwsAsg;

elasticrun_plugin_sdk::export_plugin!(AwsAsg);

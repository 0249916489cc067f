//! Discovery plugin `aws-asg`: the instances of one or more EC2 Auto Scaling groups.
//!
//! ```text
//!   DescribeAutoScalingGroups    who is a member, and in which part of its life     every poll
//!   DescribeInstances            addresses, EC2's state, tags, spot                 who is new or was not asked lately
//!   DescribeInstanceTypes        accelerators                                       once a type
//!   DescribeLifecycleHooks       how long a member stays in Terminating:Wait        when somebody is there
//! ```
//! A poll in which nothing has changed is one call. Options: see [`Options`].
//!
//! # Invariants
//! - A host's id is its instance's. An address that another instance gets later is another host.
//! - Ready means: InService, Healthy, and running for EC2.
//! - A poll is back within its deadline, whatever the network does.
//! - Nothing is asked twice in a poll, and nothing is retried: a failure goes to the job, which backs off.
//! - The only calls that change anything are those for a termination hook, and only with `complete_hook`.
//!
//! # Not promised
//! What EC2 says of an instance that its group calls InService may be [half a minute](machines::FRESH) old.

mod account;
mod failure;
mod groups;
mod hooks;
mod host;
mod machines;
mod options;
mod plugin;
mod types;

pub use options::{AddressKind, Options};
pub use plugin::AwsAsg;

elasticrun_plugin_sdk::export_plugin!(AwsAsg);

//! Detects that a host will go away, and notifies its agent.
//!
//! | source | polled | notices |
//! |---|---|---|
//! | EC2 (IMDSv2) | every second | spot interruption, rebalance recommendation (a risk only), the target state of its Auto Scaling group |
//! | Compute Engine | waits for a change | preempted, ended for maintenance |
//! | Azure | every second | scheduled events; they are approved once the host is left |
//! | SIGUSR1 | | from Slurm (`--signal=USR1@120`) or any other program; the time left is a setting, or the end of the Slurm job |
//! | a file | every 100 ms | the file exists; its text may be the seconds that are left |
//!
//! The metadata service of a cloud is polled only on a machine of that cloud, as DMI reports it, or if a variable names
//! another address: `AWS_EC2_METADATA_SERVICE_ENDPOINT`, `GCE_METADATA_HOST`, `ELASTICRUN_AZURE_IMDS`.
//!
//! # Invariants
//! - N1 Each notice of a cloud is sent once, however often the cloud repeats it. Each SIGUSR1, and each appearance of the file,
//!   is a notice of its own.
//! - N2 An unreachable source sends no notices. The log says so once, when it begins.
//! - N3 No notice is lost: if the receiver is slow, the sources wait.

#![forbid(unsafe_code)]

mod azure;
mod cloud;
mod ec2;
mod file;
mod gce;
mod http;
mod sender;
mod signals;
mod timestamps;
mod watch;

pub use watch::{Notices, Sources};

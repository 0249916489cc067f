//! Hears on a host that it will go away, and tells its agent.
//!
//! | source | asked | says |
//! |---|---|---|
//! | EC2 (IMDSv2) | every second | spot interruption, rebalance recommendation (a risk only), the target state of its Auto Scaling group |
//! | Compute Engine | waits for a change | preempted, ended for maintenance |
//! | Azure | every second | scheduled events; they are approved once the host is left |
//! | SIGUSR1 | | Slurm's `--signal=USR1@120`, or anybody |
//! | a file | every 100 ms | that it is there; its text may be the seconds that are left |
//!
//! The metadata service of a cloud is asked only on a machine that says it is of that cloud (DMI), or if a
//! variable names another address: `AWS_EC2_METADATA_SERVICE_ENDPOINT`, `GCE_METADATA_HOST`, `ELASTICRUN_AZURE_IMDS`.
//!
//! # Invariants
//! - N1 Each thing that a source says is told once, however often the source repeats it.
//! - N2 A source that cannot be reached says nothing; that is logged once, when it begins.
//! - N3 Nothing here waits for a reader: who does not read loses no notice but holds its source up.

mod azure;
mod cloud;
mod ec2;
mod file;
mod gce;
mod http;
mod moment;
mod signals;
mod watch;

pub use watch::{Notices, Sources};

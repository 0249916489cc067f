//! The harness of the ssh tests: hosts that are network namespaces with their own address and sshd.
//!
//! ```text
//!   namespace d (the driver)            namespaces h1, h2, ... (hosts)
//!   bridge 10.77.0.1 -- veth v1 ------- eth0 10.77.0.11, sshd
//!                    -- veth v2 ------- eth0 10.77.0.12, sshd
//! ```
//! All namespaces share the file system, so a binary has the same path on every host. Names carry the process id.
//! Each test makes its own keys and known hosts, and a guard removes everything again, also when the test fails.
//!
//! Not promised: that it works without root. [`Net::new`] gives the reason, and the test is skipped by name.

#![forbid(unsafe_code)]

mod host;
mod net;
mod sshd;

pub use host::Host;
pub use net::{Net, Unavailable};
pub use sshd::Sshd;

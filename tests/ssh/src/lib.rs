//! The harness of the ssh tests: hosts that are network namespaces with their own address and sshd.
//!
//! ```text
//!   namespace d (the driver)            namespaces 1, 2, ... (hosts)
//!   bridge 10.x.y.1  -- veth v1 ------- eth0 10.x.y.11, sshd
//!                    -- veth v2 ------- eth0 10.x.y.12, sshd
//! ```
//! They share the file system, so that a binary is found at the same path everywhere. Names carry the
//! process id, keys and known hosts are made for each test, and a guard takes everything away again, also
//! when the test fails.
//!
//! Not promised: that it works without root. [`Net::new`] says why not, and the test is skipped by name.

mod host;
mod net;
mod sshd;

pub use host::Host;
pub use net::{Net, Unavailable};
pub use sshd::Sshd;

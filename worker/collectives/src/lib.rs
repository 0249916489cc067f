//! Abortable collectives for the members of a round, over shared memory within a host and TCP
//! between hosts.
//!
//! # Theory of operation
//! A [`Group`] lives for one round. Its members are grouped by host. The members of a host share a
//! region of memory that their agent created for this round. The member with the lowest rank is the
//! host's leader and has TCP connections to the leaders of its [`neighbours`]. An operation runs in
//! three parts: within each host, between the leaders, and within each host again. Small messages
//! do all of it in one barrier. `local` describes the protocol in the region, `net` the protocol
//! between hosts.
//!
//! All operations block the calling thread, which is the training thread. The crate starts no
//! thread. A waiter sleeps in the kernel (futex or poll), since more ranks than processors is
//! normal.
//!
//! # Invariants
//! - C1 All members call the same operations in the same order with the same arguments. A member
//!   that does not gets an error: calls are compared in the exchange that each operation makes
//!   anyway.
//! - C2 [`Aborter::abort`] from any thread ends every call of that round, present and future.
//!   [`abort_region`] does so for all members of a host, from the agent.
//! - C3 A group that failed stays failed, and fails the members that it can reach.
//! - C4 All members get the same bits: each value is computed once, or by the same steps
//!   everywhere.
//!
//! # Not promised
//! The contents of the buffers of a failed operation. Secrecy on the network, unless the group
//! encrypts.

mod abort;
mod best_effort_barrier;
mod element;
mod error;
mod group;
mod kernels;
mod local;
mod net;
mod operations;
mod reduction;
mod region;
mod round_id;
mod signature;
mod topology;

pub use abort::Aborter;
pub use best_effort_barrier::BestEffortBarrier;
pub use element::{DType, Element, add};
pub use error::Error;
pub use group::{Group, GroupConfig, Observer};
pub use net::watch_path;
pub use reduction::Op;
pub use region::{RegionMap, abort_region, create_region, region_len};
pub use round_id::RoundId;
pub use signature::{CallSignature, OperationKind};
pub use topology::{Topology, neighbours};

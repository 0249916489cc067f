//! Collectives for the members of a round: abortable at once, over shared memory within a host and TCP
//! between hosts.
//!
//! # Theory of operation
//! A [`Group`] lives for one round. Its members are grouped by host; the members of a host share a
//! region of memory that their agent made for this round, and the one with the lowest rank, the host's
//! leader, has TCP connections to its [`neighbours`]. An operation runs in three parts: within each
//! host, between the leaders, within each host again; small messages do all of it in one barrier.
//! See `local` for the protocol in the region, `net` for that between hosts.
//!
//! Everything blocks the calling thread, which is the training thread; no thread is ever started. A
//! waiter sleeps in the kernel (futex or poll), since more ranks than processors is normal.
//!
//! # Invariants
//! - C1 All members call the same operations in the same order with the same arguments. Who does not
//!   is told so: calls are compared in the exchange that each operation makes anyway.
//! - C2 [`Aborter::abort`] from any thread ends every call of that round, present and future.
//!   [`abort_region`] does so for all members of a host, from the agent.
//! - C3 A group that failed stays failed, and takes the members with it that it can reach.
//! - C4 All members get the same bits: each value is computed once, or by the same steps everywhere.
//!
//! # Not promised
//! What an operation that failed leaves in its buffers. Secrecy on the network.

mod abort;
mod call;
mod element;
mod error;
mod group;
mod kernels;
mod local;
mod net;
mod operations;
mod region;
mod soft;
mod topology;

pub use abort::Aborter;
pub use call::{Call, Kind};
pub use element::{DType, Element, Op};
pub use error::Error;
pub use group::{Group, GroupConfig, Observer};
pub use net::watch_path;
pub use region::{RegionMap, abort_region, create_region, region_len};
pub use soft::SoftBarrier;
pub use topology::{Session, Topology, neighbours};

//! Collectives among the members of one host, through the region.
//!
//! # The barrier
//! Everything is built on one barrier. Each member adds itself to the count of arrivals. The last
//! one does the work for all (compares the calls, reduces a small message) and notifies the release
//! eventcount once, which wakes all sleepers with one system call. At a leader's barrier, the
//! leader does that work after it has exchanged data with the other hosts. There the last arrival
//! notifies the leader's eventcount.
//!
//! # Invariants
//! - L1 Barriers are numbered, and the parity of the number selects the buffers. Before barrier b, a
//!   member writes only buffers of parity b and reads only those of the other parity. No member
//!   passes barrier b before all have arrived there. A buffer is therefore never written while a
//!   member reads it, also across operations, and no operation needs a barrier at its end.
//! - L2 What was written before a barrier is visible after it. Arrivals are counted with
//!   acquire-release read-modify-writes, so the last one sees what all have written. The eventcount
//!   is notified with release and waited for with acquire.
//! - L3 All members make the same choices (message sizes, slices, which barrier). The choices
//!   depend only on the compared calls and on the history of the group.
//!
//! # Not promised
//! Containment of a member that corrupts the region: the members of a job trust each other.

mod allgather;
mod barrier;
mod broadcast;
mod reduce;
mod slices;

pub(crate) use barrier::{Failure, Local};
pub(crate) use reduce::{Buffers, SMALL};

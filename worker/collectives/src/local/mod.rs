//! Collectives among the members of one host, through the region.
//!
//! # The barrier
//! Everything is built on one barrier. Each member adds itself to the count of arrivals; the last one
//! does what is to be done for all (compares the calls, reduces a small message) and rings the release
//! bell once, which wakes all sleepers with one system call. With a leader's barrier it is the leader
//! who does that, after it has talked to the other hosts; the last arrival rings the leader's own bell.
//!
//! # Invariants
//! - L1 Barriers are numbered; the numbers' parity names the buffers. Between barriers b - 1 and b a
//!   member writes only buffers of parity b and reads only those of parity b - 1. Since nobody passes
//!   barrier b before all have arrived there, a buffer is never written while somebody reads it, also
//!   across operations, and no operation needs a barrier at its end.
//! - L2 What was written before a barrier is visible after it: arrivals are counted with acquire-release
//!   read-modify-writes, so the last one sees what all have written; the bell is rung with release and
//!   waited for with acquire.
//! - L3 All members take the same decisions (message sizes, slices, which barrier), since these follow
//!   from the compared calls and from the history of the group alone.
//!
//! # Not promised
//! That a member which scribbles over the region is contained: members of a job trust each other.

mod allgather;
mod barrier;
mod broadcast;
mod reduce;
mod slices;

pub(crate) use barrier::{Failure, Local};
pub(crate) use reduce::{Buffers, SMALL};

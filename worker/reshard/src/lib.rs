//! Sharded state: how it is divided among workers, and who copies what when the division changes.
//!
//! A [`Layout`] says which shard holds what of each tensor. It is a rule (a mesh and what its dimensions do) and no list of
//! rectangles, so that its size does not grow with the product of shards and tensors. [`Layout::rects`] gives the
//! rectangles of one shard. The local tensor of a shard has its elements in row-major order, without padding.
//!
//! ```text
//! 8 rows     0   1   2   3   4   5   6   7
//! 4 shards   |--0--| |--1--| |--2--| |--3--|
//! 3 shards   |----0----| |----1----| |--2--|     ceil(8 / 3) = 3 rows, and what is left
//! ```
//!
//! A [`Body`] places the bytes of a shard in a commit. A [`Plan`] compares the layout of a commit with that of a new round,
//! and says for each member what it copies from where, in [runs](Fetch::runs) of bytes.
//!
//! # Invariants
//! - **P1** A fetch writes each byte of a member's tensors once, from a byte of the same element.
//! - **P2** Everything here is a function of its input. All members compute the same plan.
//! - **P3** The bytes between hosts are the least possible: those that the members of a host need and no memory of the host
//!   has, each once. That is so if all that several members need is passed on, however little it is.
//! - **P4** A holder sends each byte that is passed on to one host, and each host to one other host at most.
//!
//! Bytes of others ([`Layout::from_bytes`], [`Body::parse`]) may be anything. Reading them never panics, and allocates no
//! more than a multiple of their length. A plan trusts its layouts.

#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
pub mod any_input;
mod body;
mod cover;
mod encoding;
mod error;
mod interval;
mod layout;
mod mesh;
mod plan;
mod rects;
mod tensor;

pub use body::{Body, BodyError};
pub use error::Error;
pub use interval::Interval;
pub use layout::{Layout, MAX_SHARDS};
pub use mesh::Mesh;
pub use plan::{
    Chain, Differences, Fetch, Flow, Flows, Holder, HostBytes, Link, Plan, PlanError, Relay, Run,
    Runs, Seat,
};
pub use rects::{Block, Rects};
pub use tensor::{Axis, Division, Dtype, Rect, Tensor};

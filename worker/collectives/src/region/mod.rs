//! The memory that the members of one round on one host share.
//!
//! A region is a fresh, zeroed memfd that the host's agent makes for each round with more than one
//! member there, so no writer of an older round can reach it. All of it is sparse: pages that nobody
//! touched cost nothing.
//!
//! ```text
//! offset 0     u32 magic, u32 version, u32 members, u64 session mark (at 16)
//! offset 64    u32 release bell: bit 0 = ABORTED, bit 1 = LEFT, bits 2.. = barriers   <- the abort word
//! offset 128   u32 leader's bell: the same, bits 2.. = calls for the leader
//! offset 192   u32 members that have arrived at the next barrier
//! offset 256   u32 failure state (0 none, 1 being written, 2 there), 6 x u64 record (at 264)
//! offset 320   u32 members that have come to the soft barrier
//! offset 384   u32 soft barrier's bell: the same, rung once
//! offset 4096  per member 256 bytes: attached, barrier it waits at, two calls (even and odd barriers)
//! then, at page boundaries, per member two input buffers, then two output buffers, SLICE bytes each
//! ```
//! Setting bit 0 at offsets 64, 128 and 384 and a futex wake on each is all that [`abort_region`] does.

mod bell;
mod map;

pub(crate) use bell::{RING, Wake};
pub(crate) use map::SLICE;
pub use map::{RegionMap, abort_region, create_region, region_len};

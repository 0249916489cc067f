//! The memory that the members of one round on one host share.
//!
//! A region is a fresh, zeroed memfd. The host's agent creates one for each round with more than
//! one member on the host, so no writer of an older round can reach it. The memfd is sparse:
//! untouched pages cost nothing.
//!
//! ```text
//! offset 0     u32 magic, u32 version, u32 members, u64 mark of the round (at 16)
//! offset 64    u32 release eventcount: bit 0 = ABORTED, bit 1 = LEFT, bits 2.. = barriers   <- the abort word
//! offset 128   u32 leader's eventcount: the same, bits 2.. = calls for the leader
//! offset 192   u32 members that have arrived at the next barrier
//! offset 256   u32 failure state (0 none, 1 being written, 2 complete), 6 x u64 record (at 264)
//! offset 320   u32 members that have arrived at the best-effort barrier
//! offset 384   u32 eventcount of the best-effort barrier: the same, notified once
//! offset 4096  per member 256 bytes: attached, barrier it waits at, two calls (even and odd barriers)
//! then, at page boundaries, per member two input buffers, then two output buffers, SLICE bytes each
//! ```
//! [`abort_region`] only sets bit 0 at offsets 64, 128 and 384 and makes a futex wake on each.

mod eventcount;
mod map;

pub(crate) use eventcount::{EPOCH_STEP, Wake};
pub(crate) use map::SLICE;
pub use map::{RegionMap, abort_region, create_region, region_len};

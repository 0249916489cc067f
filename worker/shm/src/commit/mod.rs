//! The committed state of one worker process, in two to four buffers that its agent owns.
//!
//! The agent creates the memory ([`CommitMemory`]) and keeps it when the worker dies. The worker writes
//! ([`CommitWriter`]). The agent reads, or another process that received the descriptors ([`CommitReader`]).
//!
//! # A buffer
//! ```text
//! 0      magic "ERUNCMIT", version, size of this layout, offset of the body
//! 128    seal: 0 while the buffer is written, else (serial << 1) | index of the valid record; last serial; overruns:
//!        how often the buffer was opened although it was pinned
//! 256    record 0: epoch, round, count, length, state version, digest, flags, check
//! 384    record 1
//! 512    pins: the number of readers that copy the commit
//! 640    shard of record 0: layout, index and number of shards, check; zeroes for the only shard
//! 768    shard of record 1
//! 896    tags of two commits that the worker keeps, in the first buffer
//! 4096   body
//! ```
//!
//! # Invariants
//! - C1 A buffer is complete if and only if its seal is not 0. The seal is cleared before the first byte of a commit is
//!   written, and set after the last one.
//! - C2 The newest complete commit is never written to; a commit goes to another buffer. So the newest commit whose
//!   `seal` returned exists at any instant, also that of a SIGKILL or of a failed growth.
//! - C3 Ids only grow, except by [`CommitWriter::discard_newer`], which unseals commits newer than a base. The next
//!   commit then goes to the free buffer, and the base stays until that commit is sealed.
//! - C4 Serials never repeat in a buffer. So a reader that sees the same seal before and after has read one commit.
//! - C5 A reader trusts no header: it checks each against the size of the file, which never shrinks.
//!
//! - C6 The bytes of a pinned commit do not change. The agent counts its pin and then reads the seal; the worker clears
//!   the seal and then reads the pins (sequentially consistent on both sides, see `model`). So if both meet, at least one
//!   of them notices and leaves the buffer to the other. At most one buffer is pinned at an instant, so one is always
//!   free. The pin may move while the worker looks, which then looks again. If it never finds a free one, it takes a
//!   pinned one: it clears the seal and counts an overrun before it writes, and the reader compares the count. It
//!   does the same if three commits exceed its limit ([`CommitWriter::set_limit`]). A worker that has two buffers knows no pins.
//!
//! - C7 A commit that the agent has named before it is sealed ([`CommitMemory::keep`]) stays until the agent names others, if
//!   four buffers do not exceed the limit: two are kept, one has the newest commit, and one is free. A commit that is named
//!   later may be gone; the agent looks for it.
//!
//! - C8 A commit that was left open ([`CommitWrite::leave_open`]) is sealed as it was written, or not at all: the next commit
//!   that is begun makes it void. Its writer may change its bytes until then ([`CommitWriter::place`]).
//!
//! # Not promised
//! The body carries no checksum. One is computed when the bytes leave the host or reach a disk.

mod buffer;
mod layout;
mod memory;
#[cfg(test)]
mod model;
mod reader;
mod search;
mod states;
mod write;
mod writer;

pub use layout::{Error, Info};
pub use memory::{CommitMemory, PinnedCommit};
pub use reader::{Commit, CommitReader};
pub use write::{BufferPlace, CommitWrite, OpenCommit, Place};
pub use writer::CommitWriter;

/// The descriptors of a worker's commit memory, two to four, in the order in which they are sent.
pub type CommitFds = Vec<std::os::fd::OwnedFd>;

//! The committed state of one worker process, in two buffers that its agent owns.
//!
//! The agent creates the memory ([`CommitMemory`]) and keeps it when the worker dies. The worker writes
//! ([`CommitWriter`]). The agent reads, or another process that received the descriptors ([`CommitReader`]).
//!
//! # A buffer
//! ```text
//! 0      magic "ERUNCMIT", version, size of this layout, offset of the body
//! 128    seal: 0 while the buffer is written, else (serial << 1) | index of the valid record
//! 256    record 0: epoch, round, count, length, state version, digest, flags, check
//! 384    record 1
//! 4096   body
//! ```
//!
//! # Invariants
//! - C1 A buffer is complete if and only if its seal is not 0. The seal is cleared before the first byte of a commit is
//!   written, and set after the last one.
//! - C2 The newest complete commit is never written to; a commit goes to the other buffer. So the newest commit whose
//!   `seal` returned exists at any instant, also that of a SIGKILL or of a failed growth.
//! - C3 Ids only grow, except by [`CommitWriter::discard_newer`], which unseals commits newer than a base. The next
//!   commit then goes to the free buffer, and the base stays until that commit is sealed.
//! - C4 Serials never repeat in a buffer. So a reader that sees the same seal before and after has read one commit.
//! - C5 A reader trusts no header: it checks each against the size of the file, which never shrinks.
//!
//! # Not promised
//! The body carries no checksum. One is computed when the bytes leave the host or reach a disk.

mod layout;
mod memory;
mod reader;
mod writer;

pub use layout::{Error, Info};
pub use memory::CommitMemory;
pub use reader::{Commit, CommitReader};
pub use writer::{CommitWrite, CommitWriter};

/// The two descriptors of a worker's commit memory, in the order in which they are sent.
pub type CommitFds = [std::os::fd::OwnedFd; 2];

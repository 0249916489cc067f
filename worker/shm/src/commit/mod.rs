//! The committed state of one worker process, in two buffers that its agent owns.
//!
//! The agent makes the memory ([`CommitMemory`]) and keeps it when the worker dies; the worker writes
//! ([`CommitWriter`]); the agent, or a process that was given the descriptors, reads ([`CommitReader`]).
//!
//! # A buffer
//! ```text
//! 0      magic "ERUNCMIT", version, size of this layout, offset of the body
//! 128    seal: 0 while the buffer is written, else (serial << 1) | which record counts
//! 256    record 0: epoch, round, count, length, state version, digest, flags, check
//! 384    record 1
//! 4096   body
//! ```
//!
//! # Invariants
//! - C1 a buffer is complete if and only if its seal is not 0. The seal is cleared before the first byte of a
//!   commit is written, and set after the last one.
//! - C2 the newest complete commit is never written to: a commit goes to the other buffer. So at any instant,
//!   also that of a SIGKILL or of a failed growth, the newest commit whose `seal` returned is there.
//! - C3 ids only grow, but by [`CommitWriter::discard_newer`], which unseals what is newer than a base; the
//!   next commit then goes to the buffer that became free, and the base stays until that one is sealed.
//! - C4 serials never repeat in a buffer, so a reader that sees one seal before and after has read one commit.
//! - C5 a reader believes nothing: what a buffer says of itself is checked against the size of its file, which
//!   never shrinks.
//!
//! # Not promised
//! The bytes of a body carry no checksum here; one is computed where they leave the host or reach a disk.

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

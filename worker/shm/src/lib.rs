//! What an agent and the workers of its host share: memory, futexes, descriptors.
//!
//! The agent is the parent of the workers and the owner of all memory. A worker gets descriptors over
//! its Unix socket ([`fds`]) and maps what they name:
//!
//! - one [`page`] per worker process: phase, beats, the boundary it is at, the hold that stops it, the
//!   abort, and a robust futex whose release by the kernel is the first sign of its [`death`];
//! - two buffers per worker process for its [`commit`]s, which outlive it.
//!
//! Both sides may be different builds. A layout begins with magic, version and size, and later versions
//! only append; a reader takes any version whose size covers what it knows.
//!
//! No policy lives here and no runtime: calls are short or block on a futex, and say so.

pub mod alive;
mod boottime;
pub mod commit;
pub mod death;
pub mod fds;
pub mod futex;
pub mod memfd;
pub mod page;
pub mod pidfd;
pub mod slice;

pub use boottime::boottime;

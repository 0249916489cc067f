//! The shared memory of an agent and the workers of its host, with futexes and descriptor passing.
//!
//! The agent is the parent of the workers and owns all memory. A worker receives descriptors over its Unix socket
//! ([`fds`]) and maps them:
//!
//! - one [`page`] per worker process: its phase, beats and boundary, the hold that stops it, and the abort. A robust
//!   futex in it is released by the kernel when the worker dies ([`liveness`]);
//! - two buffers per worker process for its [`commit`]s, which outlive it.
//!
//! Both sides may be different builds. A layout begins with magic, version and size, and later versions only append. A
//! reader accepts any version whose size covers the fields that it knows.
//!
//! This crate contains no policy and needs no runtime. Calls are short or block on a futex, as their documentation says.

mod ahead;
mod available;
mod boottime;
pub mod commit;
mod copy;
mod copying;
pub mod fds;
pub mod futex;
pub mod liveness;
pub mod liveness_watch;
pub mod memfd;
pub mod page;
mod pages;
pub mod pidfd;
pub mod sched;

pub use available::available_memory;
pub use boottime::boottime;
pub use copy::{copy, copy_bytes};
pub use copying::{Copying, Part};
pub use pages::PagePool;

//! Places that keep files when hosts are gone: a directory, which may be on a network file system, or a prefix of a bucket.
//!
//! A [`Store`] knows nothing of what the files are. Those who write several files that belong together write one more file last,
//! which names them: a manifest. All calls block.
//!
//! # Invariants
//! - D1 At any instant a file is absent or whole, also after a crash.
//! - D2 Files that other users could have changed are not read from a directory.
//!
//! # Not promised
//! A store that hangs blocks the caller.

mod access;
#[cfg(feature = "object-store")]
mod bucket;
mod directory;
mod error;
mod store;

pub use access::Access;
#[cfg(feature = "object-store")]
pub use bucket::Bucket;
pub use directory::Directory;
pub use error::Error;
pub use store::{Fill, Store, StoredFile, is_plain_name, open};

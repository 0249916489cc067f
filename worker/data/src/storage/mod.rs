//! Storage of data files: lists files and reads ranges of bytes.

mod disk_cache;
mod local;
#[cfg(feature = "object-store")]
mod object;
mod open;
mod options;
#[cfg(feature = "object-store")]
mod web;

use std::{fmt, fs::File, ops::Range};

use bytes::Bytes;

use crate::error::Result;
pub(crate) use disk_cache::CachedStorage;
pub use disk_cache::DiskCache;
pub(crate) use local::LocalStorage;
pub(crate) use open::open;
pub use options::StorageOptions;

/// A file as of the opening of the data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileInfo {
    /// Path or address, which errors show.
    pub(crate) name: String,
    /// Bytes.
    pub(crate) size: u64,
    /// Changes with the content: modification time or entity tag.
    pub(crate) version: String,
}

impl FileInfo {
    /// Text for the error about a changed file.
    fn describe(&self) -> String {
        format!("{} bytes, version {}", self.size, self.version)
    }
}

/// A storage. Threads share it, and calls block.
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    /// The data files, sorted by name.
    ///
    /// # Errors
    /// If a root does not exist or cannot be read.
    fn list(&self) -> Result<Vec<FileInfo>>;

    /// The name of a file relative to its root.
    fn relative_name<'a>(&self, file: &'a FileInfo) -> &'a str;

    /// The file `name` directly below the first root, whether it is a data file or not. `None` if the root is not a
    /// directory or has no such file.
    ///
    /// # Errors
    /// If the root cannot be read.
    fn find_at_root(&self, name: &str) -> Result<Option<FileInfo>>;

    /// Ranges with at most this gap, in bytes, are read as one, since a request costs as much.
    fn coalesce_gap(&self) -> u64;

    /// Opens a file for random access, if the storage supports it.
    ///
    /// # Errors
    /// As [`Storage::read`].
    fn open(&self, file: &FileInfo) -> Result<Option<File>>;

    /// The bytes of `ranges`, in order.
    ///
    /// # Errors
    /// If the file differs from `file` (removed, or another size or version), or cannot be read.
    fn read(&self, file: &FileInfo, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;
}

/// Whether a name is that of a data file. Names of metadata files begin with an underscore or a dot.
fn is_data(name: &str) -> bool {
    !name.starts_with(['_', '.'])
}

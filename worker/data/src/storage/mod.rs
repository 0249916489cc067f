//! Where files lie. All that the reader asks of a storage: which files there are, and ranges of their bytes.

mod cache;
mod local;
#[cfg(feature = "object-store")]
mod object;
mod open;

use std::{fmt, fs::File, ops::Range};

use bytes::Bytes;

use crate::error::Result;
pub(crate) use cache::Cached;
pub use cache::DiskCache;
pub(crate) use local::Local;
pub(crate) use open::open;

/// A file as it was when the data set was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileInfo {
    /// Path or address; names the file in errors.
    pub(crate) name: String,
    /// Bytes.
    pub(crate) size: u64,
    /// Changes when the content does: time of modification or entity tag.
    pub(crate) version: String,
}

impl FileInfo {
    /// For an error that says how a file changed.
    fn describe(&self) -> String {
        format!("{} bytes, version {}", self.size, self.version)
    }
}

/// See the module. Called from several threads; calls block.
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    /// The data files, in the order of their names.
    ///
    /// # Errors
    /// A place that is not there or cannot be read.
    fn list(&self) -> Result<Vec<FileInfo>>;

    /// The name of a file below the place where it was found.
    fn below<'a>(&self, file: &'a FileInfo) -> &'a str;

    /// The file of that name at the top of the first place, whether it is a data file or not; nothing if the
    /// place is no directory, or holds no such file.
    ///
    /// # Errors
    /// The place cannot be read.
    fn beside(&self, name: &str) -> Result<Option<FileInfo>>;

    /// Ranges that are closer than this, in bytes, are better read as one: what a request costs.
    fn gap(&self) -> u64;

    /// A file that can be read at any place without a request, if this storage has such.
    ///
    /// # Errors
    /// As [`Storage::read`].
    fn open(&self, file: &FileInfo) -> Result<Option<File>>;

    /// The bytes of `ranges`, in order.
    ///
    /// # Errors
    /// The file is not what `file` says (gone, another size, another version), or cannot be read.
    fn read(&self, file: &FileInfo, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;
}

/// Whether a name is that of a data file: writers' own files begin with an underscore or a dot.
fn is_data(name: &str) -> bool {
    !name.starts_with(['_', '.'])
}

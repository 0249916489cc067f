//! Where files lie. All that the reader asks of a storage: which files there are, and ranges of their bytes.

mod local;

use std::{fmt, ops::Range};

use bytes::Bytes;

use crate::error::Result;
pub(crate) use local::Local;

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

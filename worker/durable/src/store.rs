//! What a durable store can do.

use std::io::{self, Read, Write};

#[cfg(feature = "object-store")]
use crate::bucket::Bucket;
use crate::{Access, Error, directory::Directory};

/// Fills a file, and returns its name; none to discard it. It is called twice where the name must be known first.
pub type Fill<'a> = dyn FnMut(&mut dyn Write) -> io::Result<Option<String>> + 'a;

/// An open file.
#[allow(missing_debug_implementations, reason = "a reader has nothing to show")]
pub struct StoredFile {
    /// Its bytes.
    pub bytes: Box<dyn Read + Send>,
    /// How many there are.
    pub len: u64,
}

/// A place that keeps files below names with `/`. Several writers may use it at the same time. At any instant a file is
/// absent or whole, also after a crash. When a call that writes returns, the bytes survive a crash of this machine.
pub trait Store {
    /// Checks that the store exists. A store that is out of reach is not taken for an empty one.
    fn check(&self) -> Result<(), Error>;

    /// Checks that files can be written.
    fn check_writable(&self) -> Result<(), Error>;

    /// The runs that this user, or the owner of the store, has written, the last changed first.
    fn runs(&self) -> Result<Vec<String>, Error>;

    /// The names directly below a directory; none if it does not exist.
    fn list(&self, directory: &str) -> Result<Vec<String>, Error>;

    /// Opens a file; none if it does not exist. Files that other users could have changed are refused.
    fn open(&self, path: &str) -> Result<Option<StoredFile>, Error>;

    /// Writes a file into a directory, which need not exist. A write that fails leaves nothing behind.
    fn write(&self, directory: &str, fill: &mut Fill<'_>) -> Result<(), Error>;

    /// Writes or replaces a small file. Fails if its directory is gone.
    fn publish(&self, path: &str, bytes: &[u8]) -> Result<(), Error>;

    /// Removes one file, if it exists.
    fn remove(&self, path: &str) -> Result<(), Error>;

    /// Removes a directory with all its files, if it exists.
    fn remove_directory(&self, path: &str) -> Result<(), Error>;
}

/// Whether a name is one component of a path that programs choose: letters, digits, `-` and `_`.
pub fn is_plain_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    !name.is_empty() && name.chars().all(is_allowed)
}

/// Opens a store: a directory, or `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`. No request is sent.
///
/// # Errors
/// The URL names no store that this build supports.
pub fn open(place: &str, access: &Access) -> Result<Box<dyn Store>, Error> {
    if !place.contains("://") {
        return Ok(Box::new(Directory::new(place)));
    }
    #[cfg(feature = "object-store")]
    return Ok(Box::new(Bucket::open(place, access)?));
    #[cfg(not(feature = "object-store"))]
    let _ = access;
    #[cfg(not(feature = "object-store"))]
    Err(Error::Place {
        place: place.to_owned(),
        why: "this build supports directories only".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_user_have_other_names() {
        for name in ["", ".", "..", "a/b", "notes.txt", "a b", "a\nb"] {
            assert!(!is_plain_name(name), "{name:?}");
        }
        assert!(is_plain_name("1f2e3d4c"));
    }
}

//! What a durable store can do. All calls block.

use std::io::{self, Read, Write};

#[cfg(feature = "object-store")]
use super::bucket::Bucket;
use super::{Destination, Error, directory::Directory};

/// Fills a file, and returns its name; none to discard it. It is called twice where the name must be known first.
pub(super) type Fill<'a> = dyn FnMut(&mut dyn Write) -> io::Result<Option<String>> + 'a;

/// An open file.
pub(super) struct StoredFile {
    pub(super) bytes: Box<dyn Read + Send>,
    pub(super) len: u64,
}

/// A place that keeps files below names with `/`. Several writers may use it at the same time. At any instant a file is
/// absent or whole, also after a crash. When a call that writes returns, the bytes survive a crash of this machine.
pub(super) trait Store {
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

/// Opens the store of a destination.
pub(super) fn open(destination: &Destination) -> Result<Box<dyn Store>, Error> {
    let place = &destination.place;
    if !place.contains("://") {
        return Ok(Box::new(Directory::new(place)));
    }
    #[cfg(feature = "object-store")]
    return Ok(Box::new(Bucket::open(place, &destination.access)?));
    #[cfg(not(feature = "object-store"))]
    Err(Error::Place {
        place: place.clone(),
        why: "this build supports directories only".to_owned(),
    })
}

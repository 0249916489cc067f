//! What a reader must know of a journal in etcd before it reads the values.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::{
    Error,
    database::{FORMAT, READER, now_millis},
    seal::Key,
};

/// The value of the key `meta`. It is plain text, as the table of the same name in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// The format of the release that wrote it last.
    format: u32,
    /// The oldest reader that may read the journal.
    reader: u32,
    /// The release that wrote it last.
    software: String,
    /// Tells keys apart.
    key_id: String,
    /// When it was written, in milliseconds since the Unix epoch.
    written: u64,
    /// Whether the run has ended.
    #[serde(default)]
    ended: bool,
}

impl Meta {
    /// That of a journal that this release writes.
    pub(super) fn new(key: &Key, ended: bool) -> Self {
        Self {
            format: FORMAT,
            reader: READER,
            software: env!("CARGO_PKG_VERSION").to_owned(),
            key_id: key.id().to_owned(),
            written: now_millis(),
            ended,
        }
    }

    pub(super) fn value(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and text are JSON")
    }

    /// Refuses a journal that this release must not read, or that another key has sealed.
    ///
    /// # Errors
    /// [`Error::Newer`], [`Error::WrongKey`] or [`Error::Damaged`].
    pub(super) fn check(
        value: &[u8],
        place: &Path,
        key: &Key,
        key_file: &Path,
    ) -> Result<(), Error> {
        let read: Self = serde_json::from_slice(value).map_err(|_| Error::Damaged {
            path: place.to_owned(),
            why: "its versions cannot be read".to_owned(),
        })?;
        if read.reader > READER {
            return Err(Error::Newer {
                path: place.to_owned(),
                needs: read.reader,
                reads: READER,
                software: read.software,
            });
        }
        if read.key_id != key.id() {
            return Err(Error::WrongKey {
                path: place.to_owned(),
                key: key_file.to_owned(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(meta: &Meta, key: &Key) -> Result<(), Error> {
        Meta::check(&meta.value(), Path::new("etcd://a/r"), key, Path::new("k"))
    }

    #[test]
    fn a_journal_is_read_with_its_key_by_releases_that_know_it() {
        let key = Key::from_bytes(&[7; 32]);
        let mut meta = Meta::new(&key, false);
        check(&meta, &key).expect("ours");
        let other = Key::from_bytes(&[8; 32]);
        assert!(matches!(check(&meta, &other), Err(Error::WrongKey { .. })));
        meta.format = READER + 1;
        check(&meta, &key).expect("a newer format for this reader");
        meta.reader = READER + 1;
        assert!(matches!(check(&meta, &key), Err(Error::Newer { .. })));
    }

    #[test]
    fn fields_of_a_newer_release_are_ignored() {
        let key = Key::from_bytes(&[7; 32]);
        let mut value: serde_json::Value =
            serde_json::from_slice(&Meta::new(&key, true).value()).expect("JSON");
        value["later"] = 1.into();
        let value = value.to_string();
        let place = Path::new("etcd://a/r");
        Meta::check(value.as_bytes(), place, &key, place).expect("it is read");
        let error = Meta::check(b"{}", place, &key, place).expect_err("no versions");
        assert!(matches!(error, Error::Damaged { .. }));
    }
}

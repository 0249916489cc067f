//! The key of a journal, and the values that it seals.
//!
//! ```text
//! | version: 1 byte | nonce: 12 bytes | AES-256-GCM ciphertext and tag: as long as the value and 16 bytes |
//! ```
//! The additional data is the run id, a zero byte and the key of the entry. So a value cannot pass for that of another entry
//! or run. A nonce is random: 2^32 values of one key are safe, which is 50 values per second for two years.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

use super::Error;

/// The version of a sealed value.
const VERSION: u8 = 1;

/// Length of the key in bytes.
const KEY_LEN: usize = 32;

/// The key of a journal.
pub(super) struct Key {
    sealing: LessSafeKey,
    id: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

impl Key {
    /// The key with these bytes.
    pub(super) fn from_bytes(bytes: &[u8; KEY_LEN]) -> Self {
        let unbound = UnboundKey::new(&AES_256_GCM, bytes).expect("it has the length of a key");
        let mut hash = Sha256::new();
        hash.update(b"elasticrun journal key\0");
        hash.update(bytes);
        let hash = hash.finalize();
        let id = hash[..8].iter().map(|byte| format!("{byte:02x}"));
        Self {
            sealing: LessSafeKey::new(unbound),
            id: id.collect(),
        }
    }

    /// Makes a key, and a durable file with it that only its user can read. A file that is there is replaced.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut bytes = [0; KEY_LEN];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = (OpenOptions::new().write(true).create_new(true).mode(0o600)).open(path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        Ok(Self::from_bytes(&bytes))
    }

    /// Reads the key in this file if there is one, else makes it, for journals that share a key.
    ///
    /// # Errors
    /// It is none, others may read it, or it cannot be written.
    pub(super) fn read_or_create(journal: &Path, file: &Path) -> Result<Self, Error> {
        match Self::read(journal, file) {
            Err(Error::NoKey { .. }) => {}
            read => return read,
        }
        if let Some(parent) = file.parent() {
            (fs::DirBuilder::new().recursive(true).mode(0o700))
                .create(parent)
                .map_err(Error::io(parent))?;
        }
        // Another driver may make it at the same time, and must not see half of it.
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let new = PathBuf::from(name);
        Self::create(&new).map_err(Error::io(&new))?;
        let linked = fs::hard_link(&new, file);
        let _ = fs::remove_file(&new);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::io(file)(error))
            }
            _ => Self::read(journal, file),
        }
    }

    /// Reads the key of a journal from this file.
    ///
    /// # Errors
    /// There is no key, it is none, or others may read it.
    pub(super) fn read(journal: &Path, file: &Path) -> Result<Self, Error> {
        let (path, key) = (journal.to_owned(), file.to_owned());
        let mut file = match fs::File::open(&key) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoKey { path, key });
            }
            file => file.map_err(Error::io(&key))?,
        };
        let mode = file.metadata().map_err(Error::io(&key))?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(Error::OpenKey { key, mode });
        }
        let mut bytes = Vec::new();
        (&mut file)
            .take(KEY_LEN as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(Error::io(&key))?;
        match <[u8; KEY_LEN]>::try_from(bytes) {
            Ok(bytes) => Ok(Self::from_bytes(&bytes)),
            Err(_) => Err(Error::WrongKey { path, key }),
        }
    }

    /// What tells keys apart, and reveals nothing of this one.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Seals the value of an entry.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(super) fn seal(&self, run: &str, entry: &str, value: &[u8]) -> io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + value.len() + AES_256_GCM.tag_len());
        let mut body = value.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        self.sealing
            .seal_in_place_append_tag(nonce_used, aad(run, entry), &mut body)
            .map_err(|_| io::Error::other("a value is too long to be sealed"))?;
        sealed.push(VERSION);
        sealed.extend_from_slice(&nonce);
        sealed.append(&mut body);
        Ok(sealed)
    }

    /// The value of a sealed one. `None` if it was not sealed so, by this key, for this entry of this run.
    pub(super) fn unseal(&self, run: &str, entry: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (&version, rest) = sealed.split_first()?;
        let (nonce, body) = rest.split_at_checked(NONCE_LEN)?;
        if version != VERSION {
            return None;
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut body = body.to_vec();
        let value = self
            .sealing
            .open_in_place(nonce, aad(run, entry), &mut body)
            .ok()?;
        Some(value.to_vec())
    }
}

fn aad(run: &str, entry: &str) -> Aad<Vec<u8>> {
    Aad::from([run.as_bytes(), b"\0", entry.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_value_is_only_that_of_its_entry_and_run() {
        let key = Key::from_bytes(&[7; 32]);
        let sealed = key.seal("run", "hosts/a", b"value").expect("sealed");
        assert_eq!(
            key.unseal("run", "hosts/a", &sealed).as_deref(),
            Some(&b"value"[..])
        );
        assert_eq!(key.unseal("run", "hosts/b", &sealed), None);
        assert_eq!(key.unseal("other", "hosts/a", &sealed), None);
        // The boundary between run and entry is a part of it.
        assert_eq!(key.unseal("run\0hosts", "a", &sealed), None);
        assert_eq!(
            Key::from_bytes(&[8; 32]).unseal("run", "hosts/a", &sealed),
            None
        );
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(key.unseal("run", "hosts/a", &changed), None, "byte {at}");
            assert_eq!(key.unseal("run", "hosts/a", &sealed[..at]), None);
        }
    }

    #[test]
    fn equal_values_are_sealed_differently_and_show_nothing() {
        let key = Key::from_bytes(&[7; 32]);
        let one = key
            .seal("run", "a", b"a secret of the user")
            .expect("sealed");
        let two = key
            .seal("run", "a", b"a secret of the user")
            .expect("sealed");
        assert_ne!(one, two);
        assert!(!one.windows(6).any(|part| part == b"secret"));
    }

    #[test]
    fn a_key_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let (journal, file) = (directory.path().join("j"), directory.path().join("k"));
        let key = Key::create(&file).expect("made");
        let mode = fs::metadata(&file).expect("it is there").mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(Key::read(&journal, &file).expect("ours").id(), key.id());
        fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("ours");
        let error = Key::read(&journal, &file).expect_err("open").to_string();
        assert!(error.contains("others may read it (mode 640)"), "{error}");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
        fs::write(&file, [0; 31]).expect("ours");
        assert!(matches!(
            Key::read(&journal, &file),
            Err(Error::WrongKey { .. })
        ));
        fs::remove_file(&file).expect("ours");
        assert!(matches!(
            Key::read(&journal, &file),
            Err(Error::NoKey { .. })
        ));
    }
    #[test]
    fn journals_that_share_a_key_find_the_one_that_is_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let (journal, file) = (directory.path().join("j"), directory.path().join("a/b/k"));
        let key = Key::read_or_create(&journal, &file).expect("made");
        let again = Key::read_or_create(&journal, &file).expect("it is there");
        assert_eq!(key.id(), again.id());
        let names = fs::read_dir(directory.path().join("a/b")).expect("ours");
        assert_eq!(names.count(), 1);
        fs::write(&file, [0; 31]).expect("ours");
        let error = Key::read_or_create(&journal, &file).expect_err("it is not replaced");
        assert!(matches!(error, Error::WrongKey { .. }), "{error}");
    }
}

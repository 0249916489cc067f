//! The manifest of a durable commit: what its shards are, and that all of them are written.
//!
//! Fields are only added. A writer raises `version` with each addition. It raises `reader` if a reader of an older version
//! would load a wrong state.

use std::io::Read;

use elasticrun_protocol::CommitId;
use serde::{Deserialize, Serialize};

use elasticrun_durable::Store;

use super::{Error, layout::manifest_file};

/// The version that this release writes, and the newest that it understands.
const VERSION: u32 = 1;

/// The version that a reader of this release's manifests needs.
const READER: u32 = 1;

/// The longest manifest that is read.
const MAX_BYTES: u64 = 1 << 20;

/// A manifest. Its existence makes a commit complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    version: u32,
    /// The least version of a reader.
    reader: u32,
    /// The run that made the commit.
    pub(super) run_id: String,
    pub(super) commit: CommitId,
    /// A hash of how the state is divided and laid out; 0 for a state of one shard.
    #[serde(with = "hex")]
    pub(super) layout: u64,
    pub(super) shards: Vec<StoredShard>,
    /// The number of workers of the round.
    pub(super) world_size: u32,
    /// When it was written, in milliseconds since 1970 by the clock of the writer.
    pub(super) written_at: u64,
}

/// One shard of a durable commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct StoredShard {
    pub(super) index: u32,
    pub(super) of: u32,
    pub(super) bytes: u64,
    /// The xxh3 checksum of the bytes.
    #[serde(with = "hex")]
    pub(super) xxh3: u64,
    /// The version of the body's format, chosen by the worker.
    #[serde(default)]
    pub(super) state_version: u64,
}

/// Why a manifest is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    /// The bytes are not a manifest.
    #[error("it is damaged ({why})")]
    Malformed {
        /// The error of the parser.
        why: String,
    },
    /// A later release wrote it.
    #[error(
        "it needs a reader of version {needed}, this is {VERSION}; use the release that wrote it"
    )]
    Newer {
        /// The least version of a reader.
        needed: u32,
    },
    /// It belongs to another commit than the place where it is.
    #[error("it describes commit {commit} of run {run_id:?}")]
    Misplaced {
        /// The run in the manifest.
        run_id: String,
        /// The commit in the manifest.
        commit: CommitId,
    },
    /// A shard has no bytes.
    #[error("it has no state")]
    Empty,
    /// Its shards are not all parts of one state.
    #[error("its shards are not one state")]
    Shards,
}

/// Reads the manifest of a commit in a store; none if the commit is not complete.
pub(super) fn read_manifest(
    store: &dyn Store,
    run_id: &str,
    commit: CommitId,
) -> Result<Option<Manifest>, Error> {
    let path = manifest_file(run_id, commit);
    let Some(file) = store.open(&path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    (file.bytes.take(MAX_BYTES))
        .read_to_end(&mut bytes)
        .map_err(Error::store("read", &path))?;
    Manifest::read(&bytes, run_id, commit)
        .map(Some)
        .map_err(|source| Error::Manifest { path, source })
}

/// The parts of a manifest that each version has.
#[derive(Deserialize)]
struct Versions {
    reader: u32,
}

impl Manifest {
    /// The manifest of a commit whose shards are written.
    pub(super) fn new(
        run_id: &str,
        commit: CommitId,
        layout: u64,
        shards: Vec<StoredShard>,
        world_size: u32,
        written_at: u64,
    ) -> Self {
        Self {
            version: VERSION,
            reader: READER,
            run_id: run_id.to_owned(),
            commit,
            layout,
            shards,
            world_size,
            written_at,
        }
    }

    /// The bytes of the file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("names and numbers are always JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the manifest at the place of this commit.
    fn read(bytes: &[u8], run_id: &str, commit: CommitId) -> Result<Self, ManifestError> {
        let manifest = Self::parse(bytes)?;
        if manifest.run_id != run_id || manifest.commit != commit {
            return Err(ManifestError::Misplaced {
                run_id: manifest.run_id,
                commit: manifest.commit,
            });
        }
        Ok(manifest)
    }

    /// Reads a manifest, wherever it is.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let malformed = |error: serde_json::Error| ManifestError::Malformed {
            why: error.to_string(),
        };
        // The rest of a newer manifest may be anything.
        let versions: Versions = serde_json::from_slice(bytes).map_err(malformed)?;
        if versions.reader > VERSION {
            let needed = versions.reader;
            return Err(ManifestError::Newer { needed });
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        let of = manifest.shards.len();
        let in_order = |(index, shard): (usize, &StoredShard)| {
            shard.index as usize == index && shard.of as usize == of
        };
        if of == 0 || !manifest.shards.iter().enumerate().all(in_order) {
            return Err(ManifestError::Shards);
        }
        if manifest.shards.iter().any(|shard| shard.bytes == 0) {
            return Err(ManifestError::Empty);
        }
        Ok(manifest)
    }
}

/// 64 bits as hexadecimal digits: programs that read JSON numbers as floating point would round them.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bits: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{bits:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let bits = u64::from_str_radix(&text, 16).ok().filter(|_| digits);
        bits.ok_or_else(|| D::Error::custom("expected 16 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::{DriverEpoch, Round};

    use super::*;

    fn commit(count: u64) -> CommitId {
        CommitId {
            epoch: DriverEpoch(1),
            round: Round(2),
            count,
        }
    }

    fn manifest() -> Manifest {
        let shard = StoredShard {
            index: 0,
            of: 1,
            bytes: 5,
            xxh3: u64::MAX - 1,
            state_version: 0,
        };
        Manifest::new("r1", commit(7), 0, vec![shard], 4, 1_700_000_000_123)
    }

    fn with(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
        let mut value = serde_json::to_value(manifest()).unwrap();
        change(&mut value);
        serde_json::to_vec(&value).unwrap()
    }

    #[test]
    fn a_manifest_is_read_back() {
        let bytes = manifest().to_bytes();
        assert_eq!(Manifest::read(&bytes, "r1", commit(7)), Ok(manifest()));
    }

    /// The words on the disk. A change of this text is a change of the format.
    #[test]
    fn the_words_stay() {
        let text = r#"{"version":1,"reader":1,"run_id":"r1","commit":{"epoch":1,"round":2,"count":7},"layout":"0000000000000000","shards":[{"index":0,"of":1,"bytes":5,"xxh3":"fffffffffffffffe","state_version":0}],"world_size":4,"written_at":1700000000123}"#;
        assert_eq!(serde_json::to_string(&manifest()).unwrap(), text);
    }

    #[test]
    fn a_newer_manifest_is_read_if_its_writer_allows_it() {
        let added = with(|value| {
            value["version"] = 9.into();
            value["later"] = "x".into();
        });
        assert!(Manifest::parse(&added).is_ok());
        let needs = with(|value| value["reader"] = 2.into());
        assert_eq!(
            Manifest::parse(&needs),
            Err(ManifestError::Newer { needed: 2 })
        );
        // The rest of it may be anything.
        let alien = br#"{"reader": 3, "shards": "elsewhere"}"#;
        assert_eq!(
            Manifest::parse(alien),
            Err(ManifestError::Newer { needed: 3 })
        );
    }

    #[test]
    fn a_torn_manifest_is_refused_at_every_length() {
        let bytes = manifest().to_bytes();
        for len in 0..bytes.len() - 2 {
            let torn = Manifest::parse(&bytes[..len]);
            assert!(
                matches!(torn, Err(ManifestError::Malformed { .. })),
                "{len}: {torn:?}"
            );
        }
    }

    #[test]
    fn a_manifest_of_another_commit_is_refused() {
        let bytes = manifest().to_bytes();
        for (run_id, id) in [("r2", commit(7)), ("r1", commit(8))] {
            let error = Manifest::read(&bytes, run_id, id).unwrap_err();
            assert_eq!(error.to_string(), "it describes commit 1.2.7 of run \"r1\"");
        }
    }

    #[test]
    fn shards_that_are_not_one_state_are_refused() {
        let none = with(|value| value["shards"] = serde_json::Value::Array(Vec::new()));
        let second = with(|value| value["shards"][0]["index"] = 1.into());
        let half = with(|value| value["shards"][0]["of"] = 2.into());
        for bytes in [none, second, half] {
            assert_eq!(Manifest::parse(&bytes), Err(ManifestError::Shards));
        }
        let empty = with(|value| value["shards"][0]["bytes"] = 0.into());
        assert_eq!(Manifest::parse(&empty), Err(ManifestError::Empty));
    }
}

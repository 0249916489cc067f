//! The manifest of a snapshot: what its ranges are, and that all of them are written.

use serde::{Deserialize, Serialize};

use crate::core::elastic::{
    map::App,
    snapshot::{SavedRange, is_complete},
};

/// The version that this release writes, and the newest that it understands.
const VERSION: u32 = 1;

/// The version that a reader of this release's manifests needs.
const READER: u32 = 1;

/// A manifest. Its existence makes a snapshot complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    version: u32,
    /// The least version of a reader.
    reader: u32,
    pub(crate) number: u64,
    pub(crate) apps: Vec<App>,
    /// All keys, in ascending order.
    pub(crate) ranges: Vec<SavedRange>,
    /// When it was written, in milliseconds since 1970 by the clock of the writer.
    written_at: u64,
}

/// Why a manifest is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("it is damaged ({0})")]
    Malformed(String),
    #[error("it needs a reader of version {0}, this is {VERSION}; use the release that wrote it")]
    Newer(u32),
    #[error("it describes snapshot {0}")]
    Misplaced(u64),
    #[error("its ranges are not all keys")]
    Incomplete,
    #[error("the name of a range is {0:?}")]
    Name(String),
}

/// The parts of a manifest that each version has.
#[derive(Deserialize)]
struct Versions {
    reader: u32,
}

impl Manifest {
    pub(super) fn new(
        number: u64,
        apps: Vec<App>,
        ranges: Vec<SavedRange>,
        written_at: u64,
    ) -> Self {
        Self {
            version: VERSION,
            reader: READER,
            number,
            apps,
            ranges,
            written_at,
        }
    }

    /// The bytes of the file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("names and numbers are always JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the manifest at the place of a snapshot.
    pub(super) fn read(bytes: &[u8], number: u64) -> Result<Self, ManifestError> {
        let malformed = |error: serde_json::Error| ManifestError::Malformed(error.to_string());
        // The rest of a newer manifest may be anything.
        let versions: Versions = serde_json::from_slice(bytes).map_err(malformed)?;
        if versions.reader > VERSION {
            return Err(ManifestError::Newer(versions.reader));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        if manifest.number != number {
            return Err(ManifestError::Misplaced(manifest.number));
        }
        if !is_complete(&manifest.ranges) {
            return Err(ManifestError::Incomplete);
        }
        // A name with `/` would be a path out of the store.
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let mut names = manifest.ranges.iter().map(|range| &range.file);
        match names.find(|name| !is_name(name)) {
            Some(name) => Err(ManifestError::Name(name.clone())),
            None => Ok(manifest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> SavedRange {
        SavedRange {
            first,
            last,
            file: format!("range-{first}"),
            bytes: 5,
        }
    }

    fn manifest() -> Manifest {
        let apps = vec![App {
            app: 3,
            dtype: 11,
            ..App::default()
        }];
        Manifest::new(7, apps, vec![range(0, 9), range(10, u64::MAX)], 1_700)
    }

    fn with(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
        let mut value = serde_json::to_value(manifest()).unwrap();
        change(&mut value);
        serde_json::to_vec(&value).unwrap()
    }

    #[test]
    fn a_manifest_is_read_back() {
        assert_eq!(Manifest::read(&manifest().to_bytes(), 7), Ok(manifest()));
    }

    /// The words on the disk. A change of this text is a change of the format.
    #[test]
    fn the_words_stay() {
        let text = r#"{"version":1,"reader":1,"number":7,"apps":[{"app":3,"dtype":11}],"ranges":[{"first":0,"last":9,"file":"range-0","bytes":5},{"first":10,"last":18446744073709551615,"file":"range-10","bytes":5}],"written_at":1700}"#;
        assert_eq!(serde_json::to_string(&manifest()).unwrap(), text);
    }

    #[test]
    fn a_newer_manifest_is_read_if_its_writer_allows_it() {
        let added = with(|value| {
            value["version"] = 9.into();
            value["later"] = "x".into();
        });
        assert!(Manifest::read(&added, 7).is_ok());
        let alien = br#"{"reader": 3, "ranges": "elsewhere"}"#;
        assert_eq!(Manifest::read(alien, 7), Err(ManifestError::Newer(3)));
    }

    #[test]
    fn other_manifests_are_refused() {
        let bytes = manifest().to_bytes();
        assert_eq!(Manifest::read(&bytes, 8), Err(ManifestError::Misplaced(7)));
        for len in 0..bytes.len() - 2 {
            let torn = Manifest::read(&bytes[..len], 7);
            assert!(matches!(torn, Err(ManifestError::Malformed(_))), "{torn:?}");
        }
        let gap = with(|value| value["ranges"][1]["first"] = 11.into());
        assert_eq!(Manifest::read(&gap, 7), Err(ManifestError::Incomplete));
        let path = with(|value| value["ranges"][1]["file"] = "../../other".into());
        let name = ManifestError::Name("../../other".to_owned());
        assert_eq!(Manifest::read(&path, 7), Err(name));
    }
}

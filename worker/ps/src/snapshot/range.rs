//! The file of a range: pieces of stores, one behind the other.

use xxhash_rust::xxh3::xxh3_64;

use crate::core::ranges::KeyRange;

const MAGIC: [u8; 4] = *b"EPSR";
const VERSION: u32 = 1;
const HEADER: usize = 8;
const PIECE_HEADER: usize = 16;

/// The file of a range, in memory.
#[derive(Debug, Default)]
pub(crate) struct RangeFile(Vec<u8>);

impl RangeFile {
    /// Appends a piece of an app.
    pub(crate) fn push(&mut self, app: u32, chunk: &[u8]) {
        if self.0.is_empty() {
            self.0.extend_from_slice(&MAGIC);
            self.0.extend_from_slice(&VERSION.to_le_bytes());
        }
        self.0.extend_from_slice(&app.to_le_bytes());
        self.0.extend_from_slice(&[0; 4]);
        self.0
            .extend_from_slice(&(chunk.len() as u64).to_le_bytes());
        self.0.extend_from_slice(chunk);
    }

    /// Whether it has no piece.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn name(&self, keys: KeyRange) -> String {
        name(keys, &self.0)
    }
}

/// The name of a file. Two servers that save the same range do not replace each other's bytes.
pub(super) fn name(keys: KeyRange, bytes: &[u8]) -> String {
    let KeyRange { first, last } = keys;
    format!("range-{first:016x}-{last:016x}-{:016x}", xxh3_64(bytes))
}

/// The pieces of a file: the apps and their chunks. `None` if the bytes are no such file, or one of a later release.
pub(crate) fn pieces(bytes: &[u8]) -> Option<Vec<(u32, &[u8])>> {
    let (header, mut rest) = bytes.split_at_checked(HEADER)?;
    if header[..4] != MAGIC || header[4..] != VERSION.to_le_bytes() {
        return None;
    }
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (head, behind) = rest.split_at_checked(PIECE_HEADER)?;
        let app = u32::from_le_bytes(head[..4].try_into().ok()?);
        let len = u64::from_le_bytes(head[8..].try_into().ok()?);
        let (chunk, behind) = behind.split_at_checked(usize::try_from(len).ok()?)?;
        if head[4..8] != [0; 4] {
            return None;
        }
        pieces.push((app, chunk));
        rest = behind;
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn pieces_are_read_back(all in vec((any::<u32>(), vec(any::<u8>(), 0..20)), 1..6)) {
            let mut file = RangeFile::default();
            all.iter().for_each(|(app, chunk)| file.push(*app, chunk));
            let read = pieces(file.bytes()).unwrap();
            let expected: Vec<_> = all.iter().map(|(app, chunk)| (*app, &chunk[..])).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn any_bytes_are_pieces_or_refused(bytes: Vec<u8>, len in 0..40usize) {
            let _ = pieces(&bytes);
            let mut file = RangeFile::default();
            file.push(3, &bytes);
            let torn = &file.bytes()[..len.min(file.bytes().len() - 1)];
            prop_assert!(pieces(torn).is_none_or(|read| read.is_empty()));
        }
    }
}

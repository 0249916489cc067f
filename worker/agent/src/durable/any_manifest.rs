//! Properties of a manifest for any bytes, for unit tests and the fuzzer.

use super::manifest::Manifest;

/// Reads bytes as a manifest.
///
/// # Panics
/// When an accepted manifest is written in a form that reads differently, has shards that are not one state, or when an
/// error is not one short line.
pub fn check(bytes: &[u8]) {
    match Manifest::parse(bytes) {
        Ok(manifest) => {
            let again = Manifest::parse(&manifest.to_bytes());
            assert_eq!(again.as_ref(), Ok(&manifest));
            let of = manifest.shards.len();
            for (index, shard) in manifest.shards.iter().enumerate() {
                assert_eq!((shard.index as usize, shard.of as usize), (index, of));
            }
        }
        Err(error) => {
            let line = error.to_string();
            assert!(
                line.len() < 4096 && !line.contains(char::is_control),
                "{line:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r#"{"version":1,"reader":1,"run_id":"r","commit":{"epoch":1,"round":2,"count":3},"layout":"0000000000000000","shards":[{"index":0,"of":1,"bytes":5,"xxh3":"0123456789abcdef"}],"world_size":4,"written_at":5}"#;

    #[test]
    fn a_whole_manifest_is_accepted() {
        check(WHOLE.as_bytes());
        assert!(Manifest::parse(WHOLE.as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            check(&bytes);
        }

        #[test]
        fn a_manifest_with_any_change_is_read_or_refused(
            at in 0..WHOLE.len(),
            len in 0usize..9,
            new in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let mut bytes = WHOLE.as_bytes().to_vec();
            bytes.splice(at..(at + len).min(WHOLE.len()), new);
            check(&bytes);
        }
    }
}

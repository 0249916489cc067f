//! Key-value metadata of a footer, with values of any bytes.
//!
//! The format defines values as text, and readers reject a footer with other values. Petastorm stores pickles there.
//! So this module reads the metadata itself.

use crate::thrift::{BINARY, Compact, LIST, STRUCT};

/// Number of the field `key_value_metadata` of `FileMetaData` in parquet.thrift.
const NOTES: i16 = 5;

/// The value of a key. The inner `None` means that the key is absent or has no value, the outer one that the footer is
/// damaged.
#[expect(
    clippy::option_option,
    reason = "a damaged footer is not one without the key"
)]
pub(super) fn find<'a>(footer: &'a [u8], key: &str) -> Option<Option<&'a [u8]>> {
    let mut input = Compact::new(footer);
    let mut id = 0;
    while let Some(kind) = input.field(&mut id)? {
        if (id, kind) != (NOTES, LIST) {
            input.skip(kind, 0)?;
            continue;
        }
        let (kind, length) = input.list()?;
        if kind != STRUCT {
            return None;
        }
        for _ in 0..length {
            let (found, value) = note(&mut input)?;
            if found == key.as_bytes() {
                return Some(value);
            }
        }
    }
    Some(None)
}

/// Reads a key and its value.
fn note<'a>(input: &mut Compact<'a>) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let (mut key, mut value) = (&[][..], None);
    let mut id = 0;
    while let Some(kind) = input.field(&mut id)? {
        match (id, kind) {
            (1, BINARY) => key = input.binary()?,
            (2, BINARY) => value = Some(input.binary()?),
            _ => input.skip(kind, 0)?,
        }
    }
    Some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 1 and the entries `a` = 0xff 0xfe, `b` without a value, and `c` = "x".
    const FOOTER: [u8; 21] = [
        0x15, 0x02, 0x49, 0x3c, 0x18, 1, b'a', 0x18, 2, 0xff, 0xfe, 0, 0x18, 1, b'b', 0, 0x18, 1,
        b'c', 0x18, 1,
    ];

    #[test]
    fn values_may_be_any_bytes() {
        let footer = [&FOOTER[..], b"x", &[0, 0]].concat();
        assert_eq!(find(&footer, "a"), Some(Some(&[0xff, 0xfe][..])));
        assert_eq!(find(&footer, "b"), Some(None));
        assert_eq!(find(&footer, "c"), Some(Some(&b"x"[..])));
        assert_eq!(find(&footer, "d"), Some(None));
        for cut in 0..footer.len() - 1 {
            assert_eq!(find(&footer[..cut], "d"), None, "{cut}");
        }
    }
}

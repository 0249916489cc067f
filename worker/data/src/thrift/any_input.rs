//! Any bytes as a structure.

use super::{COLUMN_INDEX, Compact, FOOTER, OFFSET_INDEX, PAGE_HEADER, STRUCT, is_sound};

/// Reads the bytes as each structure of a file. Gives the number of structures that they are.
///
/// # Panics
/// If a reader passes the end of the bytes, or if bytes are a known structure but none of any kind.
pub fn check_any_structure(bytes: &[u8]) -> usize {
    let mut input = Compact::new(bytes);
    let is_structure = input.skip(STRUCT, 0).is_some();
    assert!(input.position() <= bytes.len(), "beyond the end");
    let end = input.position();
    let known = [FOOTER, PAGE_HEADER, OFFSET_INDEX, COLUMN_INDEX];
    let known = known.map(|structure| is_sound(bytes, structure));
    if is_structure {
        assert!(
            is_sound(&bytes[..end], &[]),
            "a structure without known fields"
        );
    }
    known.iter().filter(|is_known| **is_known).count() + usize::from(is_structure)
}

//! The structures of footers, page headers and page indexes, and the check that bytes are of such a structure.
//!
//! Arrow's reader finds a field by its number and does not look at its type. It also takes a list of booleans that it
//! skips to have no bytes. Both make it read the rest of damaged bytes in another way than this crate, so that no other
//! check of them would hold. Bytes that pass this check mean the same to both.
//!
//! Source: parquet.thrift of Apache Parquet.

use super::{BINARY, Compact, DOUBLE, FALSE, I8, I16, I32, I64, LIST, MAX_DEPTH, STRUCT, TRUE};

/// The type of a field or of an element of a list.
#[derive(Debug)]
pub(crate) enum Type {
    Bool,
    I8,
    I16,
    I32,
    I64,
    Double,
    Binary,
    List(&'static Type),
    Struct(Structure),
}

use Type::{Binary, Bool, Double, List, Struct};

/// The known fields of a structure, by number. A structure may have others.
pub(crate) type Structure = &'static [(i16, Type)];

const EMPTY: Structure = &[];

const TIME: Structure = &[(1, Bool), (2, Struct(TIME_UNIT))];
const TIME_UNIT: Structure = &[(1, Struct(EMPTY)), (2, Struct(EMPTY)), (3, Struct(EMPTY))];

const LOGICAL_TYPE: Structure = &[
    (1, Struct(EMPTY)),
    (2, Struct(EMPTY)),
    (3, Struct(EMPTY)),
    (4, Struct(EMPTY)),
    (5, Struct(&[(1, Type::I32), (2, Type::I32)])),
    (6, Struct(EMPTY)),
    (7, Struct(TIME)),
    (8, Struct(TIME)),
    (10, Struct(&[(1, Type::I8), (2, Bool)])),
    (11, Struct(EMPTY)),
    (12, Struct(EMPTY)),
    (13, Struct(EMPTY)),
    (14, Struct(EMPTY)),
    (15, Struct(EMPTY)),
    (16, Struct(&[(1, Type::I8)])),
    (17, Struct(&[(1, Binary)])),
    (18, Struct(&[(1, Binary), (2, Type::I32)])),
];

const SCHEMA_ELEMENT: Structure = &[
    (1, Type::I32),
    (2, Type::I32),
    (3, Type::I32),
    (4, Binary),
    (5, Type::I32),
    (6, Type::I32),
    (7, Type::I32),
    (8, Type::I32),
    (9, Type::I32),
    (10, Struct(LOGICAL_TYPE)),
];

const STATISTICS: Structure = &[
    (1, Binary),
    (2, Binary),
    (3, Type::I64),
    (4, Type::I64),
    (5, Binary),
    (6, Binary),
    (7, Bool),
    (8, Bool),
    (9, Type::I64),
];

const SIZE_STATISTICS: Structure = &[(1, Type::I64), (2, List(&Type::I64)), (3, List(&Type::I64))];

const BOUNDING_BOX: Structure = &[
    (1, Double),
    (2, Double),
    (3, Double),
    (4, Double),
    (5, Double),
    (6, Double),
    (7, Double),
    (8, Double),
];

const KEY_VALUE: Structure = &[(1, Binary), (2, Binary)];

const COLUMN_METADATA: Structure = &[
    (1, Type::I32),
    (2, List(&Type::I32)),
    (3, List(&Binary)),
    (4, Type::I32),
    (5, Type::I64),
    (6, Type::I64),
    (7, Type::I64),
    (8, List(&Struct(KEY_VALUE))),
    (9, Type::I64),
    (10, Type::I64),
    (11, Type::I64),
    (12, Struct(STATISTICS)),
    (
        13,
        List(&Struct(&[(1, Type::I32), (2, Type::I32), (3, Type::I32)])),
    ),
    (14, Type::I64),
    (15, Type::I32),
    (16, Struct(SIZE_STATISTICS)),
    (
        17,
        Struct(&[(1, Struct(BOUNDING_BOX)), (2, List(&Type::I32))]),
    ),
];

const COLUMN_CHUNK: Structure = &[
    (1, Binary),
    (2, Type::I64),
    (3, Struct(COLUMN_METADATA)),
    (4, Type::I64),
    (5, Type::I32),
    (6, Type::I64),
    (7, Type::I32),
    (8, Struct(EMPTY)),
    (9, Binary),
];

const ROW_GROUP: Structure = &[
    (1, List(&Struct(COLUMN_CHUNK))),
    (2, Type::I64),
    (3, Type::I64),
    (4, List(&Struct(&[(1, Type::I32), (2, Bool), (3, Bool)]))),
    (5, Type::I64),
    (6, Type::I64),
    (7, Type::I16),
];

const COLUMN_ORDER: Structure = &[(1, Struct(EMPTY)), (2, Struct(EMPTY)), (3, Struct(EMPTY))];

/// A footer: `FileMetaData`.
pub(crate) const FOOTER: Structure = &[
    (1, Type::I32),
    (2, List(&Struct(SCHEMA_ELEMENT))),
    (3, Type::I64),
    (4, List(&Struct(ROW_GROUP))),
    (5, List(&Struct(KEY_VALUE))),
    (6, Binary),
    (7, List(&Struct(COLUMN_ORDER))),
    (8, Struct(EMPTY)),
    (9, Binary),
];

/// The header of a page: `PageHeader`.
pub(crate) const PAGE_HEADER: Structure = &[
    (1, Type::I32),
    (2, Type::I32),
    (3, Type::I32),
    (4, Type::I32),
    (
        5,
        Struct(&[
            (1, Type::I32),
            (2, Type::I32),
            (3, Type::I32),
            (4, Type::I32),
            (5, Struct(STATISTICS)),
        ]),
    ),
    (6, Struct(EMPTY)),
    (7, Struct(&[(1, Type::I32), (2, Type::I32), (3, Bool)])),
    (
        8,
        Struct(&[
            (1, Type::I32),
            (2, Type::I32),
            (3, Type::I32),
            (4, Type::I32),
            (5, Type::I32),
            (6, Type::I32),
            (7, Bool),
            (8, Struct(STATISTICS)),
        ]),
    ),
];

/// The places of the pages of a chunk: `OffsetIndex`.
pub(crate) const OFFSET_INDEX: Structure = &[
    (
        1,
        List(&Struct(&[(1, Type::I64), (2, Type::I32), (3, Type::I64)])),
    ),
    (2, List(&Type::I64)),
];

/// The bounds of the pages of a chunk: `ColumnIndex`.
pub(crate) const COLUMN_INDEX: Structure = &[
    (1, List(&Bool)),
    (2, List(&Binary)),
    (3, List(&Binary)),
    (4, Type::I32),
    (5, List(&Type::I64)),
    (6, List(&Type::I64)),
    (7, List(&Type::I64)),
    (8, List(&Type::I64)),
];

/// Whether bytes begin with a structure whose known fields have the types of `structure`. Lists have no more elements
/// than bytes follow, and numbers no more bits than their type.
pub(crate) fn is_sound(bytes: &[u8], structure: Structure) -> bool {
    Compact::new(bytes).structure(structure, 0).is_some()
}

impl Compact<'_> {
    fn structure(&mut self, structure: Structure, depth: usize) -> Option<()> {
        let mut id = 0;
        while let Some(kind) = self.field(&mut id)? {
            match structure.iter().find(|(known, _)| *known == id) {
                Some((_, expected)) => self.expect(expected, kind, depth)?,
                None => self.skip(kind, 0)?,
            }
        }
        Some(())
    }

    /// Reads a value of type `kind`, which must be the expected one.
    fn expect(&mut self, expected: &Type, kind: u8, depth: usize) -> Option<()> {
        match (expected, kind) {
            (Type::Bool, TRUE | FALSE) => {}
            (Type::I8, I8) | (Type::I64, I64) | (Type::Double, DOUBLE) | (Type::Binary, BINARY) => {
                self.skip(kind, 0)?;
            }
            (Type::I16, I16) => drop(i16::try_from(self.zigzag()?).ok()?),
            (Type::I32, I32) => drop(self.i32()?),
            (Type::List(element), LIST) => {
                let (kind, length) = self.list()?;
                for _ in 0..length {
                    match (element, kind) {
                        // A boolean in a list is one byte.
                        (Type::Bool, TRUE | FALSE) => drop(self.byte()?),
                        _ => self.expect(element, kind, depth)?,
                    }
                }
            }
            (Type::Struct(fields), STRUCT) if depth < MAX_DEPTH => {
                self.structure(fields, depth + 1)?;
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_fields_have_their_type() {
        // Type 0, sizes 4 and 4, a data page with 1 value.
        let header = [
            0x15, 0x00, 0x15, 0x08, 0x15, 0x08, 0x2c, 0x15, 0x02, 0x15, 0, 0x15, 0, 0x15, 0, 0, 0,
        ];
        assert!(is_sound(&header, PAGE_HEADER));
        for cut in 0..header.len() {
            assert!(!is_sound(&header[..cut], PAGE_HEADER), "{cut}");
        }
        let mut other = header;
        // The number of values as I64, and the page as a list.
        other[7] = 0x16;
        assert!(!is_sound(&other, PAGE_HEADER));
        other = header;
        other[6] = 0x29;
        assert!(!is_sound(&other, PAGE_HEADER));
    }

    #[test]
    fn lists_have_no_more_elements_than_bytes() {
        // 2^31 - 1 locations of pages, and one.
        let many = [0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0];
        assert!(!is_sound(&many, OFFSET_INDEX));
        let one = [0x19, 0x1c, 0x16, 8, 0x15, 8, 0x16, 0, 0, 0];
        assert!(is_sound(&one, OFFSET_INDEX));
    }

    #[test]
    fn booleans_are_in_no_list_that_arrow_skips() {
        let known = [0x19, 0x22, 1, 2, 0];
        assert!(is_sound(&known, COLUMN_INDEX));
        let unknown = [0x09, 0x7e, 0x22, 1, 2, 0];
        assert!(!is_sound(&unknown, COLUMN_INDEX));
        // A list of two numbers in a field that no version has.
        assert!(is_sound(&[0x09, 0x7e, 0x25, 1, 2, 0], COLUMN_INDEX));
    }

    #[test]
    fn the_order_of_a_column_is_a_structure() {
        for order in 1..=3_u8 {
            let orders = |kind: u8| [0x79, 0x1c, order << 4 | kind, 0, 0, 0];
            assert!(is_sound(&orders(STRUCT), FOOTER), "{order}");
            assert!(!is_sound(&orders(TRUE), FOOTER), "{order}");
        }
    }
}

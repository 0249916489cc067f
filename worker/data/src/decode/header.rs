//! Page headers: the fields of Parquet's `PageHeader` that decoding needs, in Thrift's compact protocol.
//!
//! Source: parquet.thrift of Apache Parquet.

use crate::thrift::{Compact, FALSE, I32, STRUCT, TRUE};

/// Number of the encoding of levels as runs, in parquet.thrift.
pub(super) const RLE: i32 = 3;

/// The type of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageType {
    Data,
    Dictionary,
    DataV2,
    Other,
}

/// The header of a page. Numbers that do not apply are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) page_type: PageType,
    pub(super) uncompressed: usize,
    pub(super) compressed: usize,
    pub(super) crc: Option<u32>,
    pub(super) values: usize,
    /// Number of the encoding in parquet.thrift.
    pub(super) encoding: i32,
    /// For pages of version 1: the encodings of both kinds of levels. Those of version 2 are runs.
    pub(super) definition_encoding: i32,
    pub(super) repetition_encoding: i32,
    /// For pages of version 2: bytes of both kinds of levels, which precede the values and are not compressed.
    pub(super) definition_bytes: usize,
    pub(super) repetition_bytes: usize,
    /// For pages of version 2: whether the values are compressed.
    pub(super) is_compressed: bool,
}

/// Reads the header at the start of `bytes`, and returns it with its length. `None` if it is cut or invalid, or if a
/// size or a number of values is negative or has more than 32 bits.
pub(super) fn read(bytes: &[u8]) -> Option<(PageHeader, usize)> {
    let mut input = Compact::new(bytes);
    let mut header = PageHeader {
        page_type: PageType::Other,
        uncompressed: 0,
        compressed: 0,
        crc: None,
        values: 0,
        encoding: 0,
        definition_encoding: RLE,
        repetition_encoding: RLE,
        definition_bytes: 0,
        repetition_bytes: 0,
        is_compressed: true,
    };
    let mut id = 0;
    while let Some(kind) = input.field(&mut id)? {
        match (id, kind) {
            (1, I32) => {
                header.page_type = match input.i32()? {
                    0 => PageType::Data,
                    2 => PageType::Dictionary,
                    3 => PageType::DataV2,
                    _ => PageType::Other,
                }
            }
            (2, I32) => header.uncompressed = input.length()?,
            (3, I32) => header.compressed = input.length()?,
            // A checksum is 32 bits in a signed field.
            (4, I32) => header.crc = Some(input.i32()? as u32),
            (5, STRUCT) => input.page(
                &mut header,
                &[
                    Field::Values,
                    Field::Encoding,
                    Field::DefinitionEncoding,
                    Field::RepetitionEncoding,
                ],
            )?,
            (7, STRUCT) => input.page(&mut header, &[Field::Values, Field::Encoding])?,
            (8, STRUCT) => input.page(
                &mut header,
                &[
                    Field::Values,
                    Field::Other,
                    Field::Other,
                    Field::Encoding,
                    Field::Definition,
                    Field::Repetition,
                    Field::IsCompressed,
                ],
            )?,
            _ => input.skip(kind, 0)?,
        }
    }
    Some((header, input.position()))
}

/// The fields that this module uses, of the structures for the types of pages.
#[derive(Clone, Copy)]
enum Field {
    Values,
    Encoding,
    DefinitionEncoding,
    RepetitionEncoding,
    Definition,
    Repetition,
    IsCompressed,
    Other,
}

impl Compact<'_> {
    /// Reads the structure of one type of page, whose first fields are `fields`.
    fn page(&mut self, header: &mut PageHeader, fields: &[Field]) -> Option<()> {
        let mut id = 0;
        while let Some(kind) = self.field(&mut id)? {
            let field = usize::try_from(id)
                .ok()
                .and_then(|id| fields.get(id.checked_sub(1)?));
            match (field.unwrap_or(&Field::Other), kind) {
                (Field::Values, I32) => header.values = self.length()?,
                (Field::Encoding, I32) => header.encoding = self.i32()?,
                (Field::DefinitionEncoding, I32) => header.definition_encoding = self.i32()?,
                (Field::RepetitionEncoding, I32) => header.repetition_encoding = self.i32()?,
                (Field::Definition, I32) => header.definition_bytes = self.length()?,
                (Field::Repetition, I32) => header.repetition_bytes = self.length()?,
                (Field::IsCompressed, TRUE | FALSE) => header.is_compressed = kind == TRUE,
                _ => self.skip(kind, 0)?,
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_data_page_with_statistics() {
        // Type 0, sizes 300 and 20, checksum -1, data page: 7 values, plain, levels by runs, statistics.
        let bytes = [
            0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x28, 0x15, 0x01, 0x1c, 0x15, 0x0e, 0x15, 0x00,
            0x15, 0x06, 0x15, 0x06, 0x1c, 0x18, 0x02, 0xaa, 0xbb, 0x16, 0x02, 0x00, 0x00, 0x00,
            0xff,
        ];
        let (header, length) = read(&bytes).unwrap();
        assert_eq!(length, bytes.len() - 1);
        assert_eq!(header.page_type, PageType::Data);
        assert_eq!((header.uncompressed, header.compressed), (300, 20));
        assert_eq!((header.values, header.encoding), (7, 0));
        assert_eq!(header.crc, Some(u32::MAX));
        for cut in 0..length {
            assert_eq!(read(&bytes[..cut]), None);
        }
    }

    /// 2^62 values in a data page, and sizes of 2^31 and -1 bytes.
    #[test]
    fn sizes_are_32_bits() {
        let page = |values: &[u8]| {
            let fields = [&[0x15, 0x00, 0x15, 0x08, 0x15, 0x08, 0x2c, 0x15], values];
            let header = [&fields.concat()[..], &[0x15, 0x00, 0x00, 0x00]].concat();
            read(&header).map(|(header, _)| header.values)
        };
        assert_eq!(page(&[0xfe, 0xff, 0xff, 0xff, 0x0f]), Some(0x7fff_ffff));
        assert_eq!(page(&[0x80, 0x80, 0x80, 0x80, 0x10]), None);
        let two_to_62 = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
        assert_eq!(page(&two_to_62), None);
        assert_eq!(page(&[0x01]), None);
        for size in [0x25, 0x35] {
            let negative = [size, 0x01, 0x00];
            assert_eq!(read(&negative), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some((_, length)) = read(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}

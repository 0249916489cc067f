//! Page headers: the few fields of Parquet's `PageHeader` that decoding needs, in Thrift's compact protocol.
//!
//! Source: parquet.thrift and thrift-compact-protocol.md of the Apache projects.

/// What a page holds, by its number in parquet.thrift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageType {
    Data,
    Dictionary,
    DataV2,
    Other,
}

/// The header of a page; numbers that do not apply are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) page_type: PageType,
    pub(super) uncompressed: usize,
    pub(super) compressed: usize,
    pub(super) crc: Option<u32>,
    pub(super) values: usize,
    /// By its number in parquet.thrift.
    pub(super) encoding: i64,
    /// Of a page of version 2: bytes of both kinds of levels, which lie before the values, uncompressed.
    pub(super) definition_bytes: usize,
    pub(super) repetition_bytes: usize,
    /// Of a page of version 2: whether its values are compressed.
    pub(super) is_compressed: bool,
}

/// Reads the header at the beginning of `bytes`, and tells its length. Nothing if it is cut or makes no sense.
pub(super) fn read(bytes: &[u8]) -> Option<(PageHeader, usize)> {
    let mut input = Compact { bytes, at: 0 };
    let mut header = PageHeader {
        page_type: PageType::Other,
        uncompressed: 0,
        compressed: 0,
        crc: None,
        values: 0,
        encoding: 0,
        definition_bytes: 0,
        repetition_bytes: 0,
        is_compressed: true,
    };
    let mut id = 0;
    while let Some(kind) = input.field(&mut id)? {
        match (id, kind) {
            (1, I32) => {
                header.page_type = match input.zigzag()? {
                    0 => PageType::Data,
                    2 => PageType::Dictionary,
                    3 => PageType::DataV2,
                    _ => PageType::Other,
                }
            }
            (2, I32) => header.uncompressed = input.size()?,
            (3, I32) => header.compressed = input.size()?,
            // A checksum is 32 bits in a signed field.
            (4, I32) => header.crc = Some(input.zigzag()? as u32),
            (5 | 7, STRUCT) => input.page(&mut header, &[Field::Values, Field::Encoding])?,
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
    Some((header, input.at))
}

/// The fields of the structures for each type of page, by what we make of them.
#[derive(Clone, Copy)]
enum Field {
    Values,
    Encoding,
    Definition,
    Repetition,
    IsCompressed,
    Other,
}

/// Types of the compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I8: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// Structures within structures; statistics have one level.
const DEEPEST: usize = 8;

struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Compact<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn size(&mut self) -> Option<usize> {
        self.zigzag()?.try_into().ok()
    }

    /// The type of the next field, whose number `id` becomes; inner nothing at the end of the structure.
    #[expect(
        clippy::option_option,
        reason = "a cut header is not the end of a structure"
    )]
    fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *id = match head >> 4 {
            0 => self.zigzag()?,
            step => *id + i64::from(step),
        };
        Some(Some(head & 0x0f))
    }

    /// The structure of one type of page, whose first fields are `fields`.
    fn page(&mut self, header: &mut PageHeader, fields: &[Field]) -> Option<()> {
        let mut id = 0;
        while let Some(kind) = self.field(&mut id)? {
            let field = usize::try_from(id - 1)
                .ok()
                .and_then(|place| fields.get(place));
            match (field.unwrap_or(&Field::Other), kind) {
                (Field::Values, I32) => header.values = self.size()?,
                (Field::Encoding, I32) => header.encoding = self.zigzag()?,
                (Field::Definition, I32) => header.definition_bytes = self.size()?,
                (Field::Repetition, I32) => header.repetition_bytes = self.size()?,
                (Field::IsCompressed, TRUE | FALSE) => header.is_compressed = kind == TRUE,
                _ => self.skip(kind, 0)?,
            }
        }
        Some(())
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            TRUE | FALSE => {}
            I8 => drop(self.byte()?),
            I16 | I32 | I64 => drop(self.varint()?),
            DOUBLE => self.at += 8,
            BINARY => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.at = self.at.checked_add(length)?;
            }
            LIST | SET if depth < DEEPEST => {
                let head = self.byte()?;
                let length = match head >> 4 {
                    15 => self.varint()?,
                    short => u64::from(short),
                };
                for _ in 0..length {
                    match head & 0x0f {
                        // In a list a truth value is a byte.
                        TRUE | FALSE => drop(self.byte()?),
                        kind => self.skip(kind, depth + 1)?,
                    }
                }
            }
            STRUCT if depth < DEEPEST => {
                let mut id = 0;
                while let Some(kind) = self.field(&mut id)? {
                    self.skip(kind, depth + 1)?;
                }
            }
            _ => return None,
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

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some((_, length)) = read(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}

//! Thrift's compact protocol, as far as footers and page headers need it.
//!
//! Source: thrift-compact-protocol.md of Apache Thrift.

#[cfg(any(test, fuzzing))]
mod any_input;
mod structures;

#[cfg(any(test, fuzzing))]
pub use any_input::check_any_structure;
pub(crate) use structures::{COLUMN_INDEX, FOOTER, OFFSET_INDEX, PAGE_HEADER, Structure, is_sound};

/// Types of the compact protocol.
pub(crate) const TRUE: u8 = 1;
pub(crate) const FALSE: u8 = 2;
pub(crate) const I8: u8 = 3;
pub(crate) const I16: u8 = 4;
pub(crate) const I32: u8 = 5;
pub(crate) const I64: u8 = 6;
pub(crate) const DOUBLE: u8 = 7;
pub(crate) const BINARY: u8 = 8;
pub(crate) const LIST: u8 = 9;
pub(crate) const SET: u8 = 10;
pub(crate) const STRUCT: u8 = 12;

/// Maximum depth of nested structures; statistics have one level.
const MAX_DEPTH: usize = 8;

/// A cursor over bytes in the compact protocol. Methods return `None` if the bytes are cut or invalid.
pub(crate) struct Compact<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Compact<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, pos: 0 }
    }

    /// Number of bytes that were read.
    pub(crate) fn position(&self) -> usize {
        self.pos
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.pos)?;
        self.pos += 1;
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

    pub(crate) fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads a number of 32 bits. `None` if it has more.
    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.zigzag()?.try_into().ok()
    }

    /// Reads a length: a number of 32 bits that is not negative.
    pub(crate) fn length(&mut self) -> Option<usize> {
        self.i32()?.try_into().ok()
    }

    /// Reads the type of the next field, and sets `id` to its number. The inner `None` is the end of the structure.
    #[expect(
        clippy::option_option,
        reason = "a cut header is not the end of a structure"
    )]
    pub(crate) fn field(&mut self, id: &mut i16) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *id = match head >> 4 {
            0 => self.zigzag()?.try_into().ok()?,
            step => id.checked_add(i16::from(step))?,
        };
        Some(Some(head & 0x0f))
    }

    /// Reads the next `length` bytes.
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let value = self.bytes.get(self.pos..)?.get(..length)?;
        self.pos += length;
        Some(value)
    }

    /// Reads a byte string.
    pub(crate) fn binary(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        self.take(length)
    }

    /// Reads the header of a list: the type and the number of its elements. `None` if there are fewer bytes than
    /// elements, since an element has at least one byte.
    pub(crate) fn list(&mut self) -> Option<(u8, usize)> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => usize::try_from(self.varint()?).ok()?,
            short => usize::from(short),
        };
        (length <= self.bytes.len() - self.pos).then_some((head & 0x0f, length))
    }

    pub(crate) fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            TRUE | FALSE => {}
            I8 => drop(self.byte()?),
            I16 | I32 | I64 => drop(self.varint()?),
            DOUBLE => drop(self.take(8)?),
            BINARY => drop(self.binary()?),
            LIST | SET if depth < MAX_DEPTH => {
                let (kind, length) = self.list()?;
                // Arrow's reader takes booleans of a list that it skips to have no bytes, so the two would not agree on
                // what follows. No version of the format has such a list.
                if let (TRUE | FALSE, 1..) = (kind, length) {
                    return None;
                }
                for _ in 0..length {
                    self.skip(kind, depth + 1)?;
                }
            }
            STRUCT if depth < MAX_DEPTH => {
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
    use super::*;

    /// Field 9, a list of 2^60 doubles, then the 20 bytes of two and a half of them.
    #[test]
    fn a_list_of_doubles_needs_its_bytes() {
        let count = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
        let bytes = [&[0xf7][..], &count, &[1; 20]].concat();
        assert_eq!(Compact::new(&bytes).skip(LIST, 0), None);
        // Three doubles in 20 bytes.
        let bytes = [&[0x37][..], &[1; 20]].concat();
        let mut input = Compact::new(&bytes);
        assert_eq!(input.skip(LIST, 0), None);
        assert!(input.position() <= bytes.len());
        let bytes = [&[0x27][..], &[1; 20]].concat();
        let mut input = Compact::new(&bytes);
        assert_eq!((input.skip(LIST, 0), input.position()), (Some(()), 17));
    }

    #[test]
    fn field_numbers_have_16_bits() {
        let (mut id, bytes) = (0, [0x05, 0xfe, 0xff, 0x03, 0x15]);
        let mut input = Compact::new(&bytes);
        assert_eq!(input.field(&mut id), Some(Some(I32)));
        assert_eq!(id, i16::MAX);
        assert_eq!(input.field(&mut id), None, "the next number has 17 bits");
        assert_eq!(Compact::new(&[0x05, 0x80, 0x80, 0x04]).field(&mut id), None);
    }

    #[test]
    fn numbers_of_32_bits_have_no_more() {
        let number = |bytes: &[u8]| Compact::new(bytes).i32();
        assert_eq!(number(&[0xfe, 0xff, 0xff, 0xff, 0x0f]), Some(i32::MAX));
        assert_eq!(number(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Some(i32::MIN));
        assert_eq!(number(&[0x80, 0x80, 0x80, 0x80, 0x10]), None);
        assert_eq!(Compact::new(&[0x01]).length(), None, "negative");
    }
}

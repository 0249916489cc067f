//! Thrift's compact protocol, as far as footers and page headers need it.
//!
//! Source: thrift-compact-protocol.md of Apache Thrift.

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

    pub(crate) fn varint(&mut self) -> Option<u64> {
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

    pub(crate) fn size(&mut self) -> Option<usize> {
        self.zigzag()?.try_into().ok()
    }

    /// Reads the type of the next field, and sets `id` to its number. The inner `None` is the end of the structure.
    #[expect(
        clippy::option_option,
        reason = "a cut header is not the end of a structure"
    )]
    pub(crate) fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
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

    /// Reads a byte string.
    pub(crate) fn binary(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let value = self.bytes.get(self.pos..)?.get(..length)?;
        self.pos += length;
        Some(value)
    }

    /// Reads the header of a list: the type and the number of its elements.
    pub(crate) fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        Some((head & 0x0f, length))
    }

    pub(crate) fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            TRUE | FALSE => {}
            I8 => drop(self.byte()?),
            I16 | I32 | I64 => drop(self.varint()?),
            DOUBLE => self.pos += 8,
            BINARY => drop(self.binary()?),
            LIST | SET if depth < MAX_DEPTH => {
                let (kind, length) = self.list()?;
                for _ in 0..length {
                    match kind {
                        // A boolean in a list is one byte.
                        TRUE | FALSE => drop(self.byte()?),
                        kind => self.skip(kind, depth + 1)?,
                    }
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

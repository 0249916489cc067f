//! The bytes of a shard: the body of a sharded commit.
//!
//! ```text
//! 0         64        64 + layout              a multiple of 64
//! | header  | layout   | head       | padding  | tensor 0 | padding | tensor 1 | ...
//! ```
//!
//! The header has these numbers, in little-endian order:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 8 | `ERSHARD` and a zero |
//! | 8 to 12 | version, 1 |
//! | 12 to 16 | index of the shard |
//! | 16 to 24 | hash of the layout |
//! | 24 to 32 | length of the layout |
//! | 32 to 40 | length of the head |
//! | 40 to 48 | length of the body |
//! | 48 to 56 | 0, for later versions |
//! | 56 to 64 | XXH3 of bytes 0 to 56 |
//!
//! The head is the caller's: what is no tensor. The tensors follow in the order of the layout, each with the elements of its
//! [`Rects`](crate::Rects). A tensor begins at a multiple of 64. Padding has any bytes.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, Layout};

const MAGIC: &[u8; 8] = b"ERSHARD\0";
const VERSION: u32 = 1;

/// Where the parts of the body of one shard are, in bytes from its beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    shard: u32,
    layout_hash: u64,
    layout: Range<usize>,
    head: Range<usize>,
    tensors: Vec<Range<usize>>,
    len: usize,
}

/// Why bytes are not the body of a shard.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// It has not even a header.
    #[error("not a shard of a state: it has {len} bytes")]
    TooShort {
        /// Its length in bytes.
        len: usize,
    },
    /// It begins with something else, for example because the state is not divided.
    #[error("not a shard of a state")]
    Magic,
    /// Another version of the format.
    #[error(
        "the shard is in version {version} of its format and must be in 1; run all workers with the same release"
    )]
    Version {
        /// The version.
        version: u32,
    },
    /// The header is damaged, or its numbers contradict each other.
    #[error("the header of the shard is damaged")]
    Damaged,
    /// It is shorter or longer than its header says.
    #[error("the shard must have {expected} bytes and has {len}")]
    Len {
        /// The length that follows from header and layout.
        expected: usize,
        /// Its length.
        len: usize,
    },
    /// The layout has no such shard.
    #[error("shard {shard} of {shards}")]
    Shard {
        /// The shard.
        shard: u32,
        /// Shards of the layout.
        shards: u32,
    },
    /// It is a shard of another layout.
    #[error("the shard has layout {hash:016x} and must have {expected:016x}")]
    OtherLayout {
        /// Hash of its layout.
        hash: u64,
        /// Hash of the layout that was expected.
        expected: u64,
    },
    /// Its layout is none.
    #[error(transparent)]
    Layout(#[from] Error),
    /// It is larger than memory can be.
    #[error("the shard is larger than memory can be")]
    TooLarge,
}

impl Body {
    /// Bytes of the header.
    pub const HEADER: usize = 64;

    /// Tensors begin at a multiple of this.
    pub const ALIGN: usize = 64;

    /// Where the parts of a shard are, if its head has `head` bytes.
    ///
    /// # Errors
    /// If the layout has no such shard, or it is too large.
    pub fn new(layout: &Layout, shard: u32, head: usize) -> Result<Self, BodyError> {
        let shards = layout.shards();
        if shard >= shards {
            return Err(BodyError::Shard { shard, shards });
        }
        let layout_end = Self::HEADER + layout.as_bytes().len();
        let head_end = layout_end.checked_add(head).ok_or(BodyError::TooLarge)?;
        let mut len = head_end;
        let mut tensors = Vec::with_capacity(layout.tensors().len());
        for tensor in 0..layout.tensors().len() as u32 {
            let start = len.checked_next_multiple_of(Self::ALIGN);
            let bytes = usize::try_from(layout.local_bytes(tensor, shard));
            let end = (start.zip(bytes.ok())).and_then(|(start, bytes)| start.checked_add(bytes));
            let (Some(start), Some(end)) = (start, end) else {
                return Err(BodyError::TooLarge);
            };
            tensors.push(start..end);
            len = end;
        }
        if isize::try_from(len).is_err() {
            return Err(BodyError::TooLarge);
        }
        Ok(Self {
            shard,
            layout_hash: layout.hash(),
            layout: Self::HEADER..layout_end,
            head: layout_end..head_end,
            tensors,
            len,
        })
    }

    /// Reads a body with its layout.
    ///
    /// # Errors
    /// If the bytes are not the body of a shard.
    pub fn parse(bytes: &[u8]) -> Result<(Layout, Self), BodyError> {
        let header = Header::parse(bytes)?;
        let layout = Layout::from_bytes(header.layout(bytes)?)?;
        let body = header.body(&layout, bytes)?;
        Ok((layout, body))
    }

    /// Reads a body whose layout the caller knows, without decoding the layout again.
    ///
    /// # Errors
    /// If the bytes are not the body of a shard of this layout.
    pub fn parse_with(layout: &Layout, bytes: &[u8]) -> Result<Self, BodyError> {
        let header = Header::parse(bytes)?;
        let (hash, expected) = (header.layout_hash, layout.hash());
        if hash != expected || header.layout(bytes)? != layout.as_bytes() {
            return Err(BodyError::OtherLayout { hash, expected });
        }
        header.body(layout, bytes)
    }

    /// Reads the header of a body of this layout, of which the rest is elsewhere.
    ///
    /// # Errors
    /// If the bytes are not the header of a shard of this layout.
    pub fn of_header(layout: &Layout, header: &[u8]) -> Result<Self, BodyError> {
        let header = Header::parse(header)?;
        let (hash, expected) = (header.layout_hash, layout.hash());
        if hash != expected {
            return Err(BodyError::OtherLayout { hash, expected });
        }
        header.offsets(layout)
    }

    /// Where the layout is in a body with this header.
    ///
    /// # Errors
    /// If the bytes are not the header of a shard.
    pub fn layout_of_header(header: &[u8]) -> Result<Range<usize>, BodyError> {
        let len = usize::try_from(Header::parse(header)?.layout).map_err(|_| BodyError::Damaged)?;
        let end = Self::HEADER.checked_add(len).ok_or(BodyError::Damaged)?;
        Ok(Self::HEADER..end)
    }

    /// The header, to be written at the beginning.
    pub fn header(&self) -> [u8; Self::HEADER] {
        let mut out = [0; Self::HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.shard.to_le_bytes());
        let numbers = [
            self.layout_hash,
            self.layout.len() as u64,
            self.head.len() as u64,
            self.len as u64,
        ];
        for (bytes, number) in out[16..48].chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        let check = xxh3_64(&out[..56]);
        out[56..].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// Index of the shard.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// Where the bytes of the layout are.
    pub fn layout(&self) -> Range<usize> {
        self.layout.clone()
    }

    /// Where the head is.
    pub fn head(&self) -> Range<usize> {
        self.head.clone()
    }

    /// Where the local tensors are, in the order of the layout.
    pub fn tensors(&self) -> &[Range<usize>] {
        &self.tensors
    }

    /// Bytes of the whole body.
    #[expect(clippy::len_without_is_empty, reason = "a body has at least a header")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// The numbers of a header whose check is right.
struct Header {
    shard: u32,
    layout_hash: u64,
    layout: u64,
    head: u64,
    len: u64,
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Self, BodyError> {
        let len = bytes.len();
        let header = bytes
            .first_chunk::<{ Body::HEADER }>()
            .ok_or(BodyError::TooShort { len })?;
        let word = |at: usize| {
            let bytes = header[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        if header[..8] != *MAGIC {
            return Err(BodyError::Magic);
        }
        let version = word(8) as u32;
        if version != VERSION {
            return Err(BodyError::Version { version });
        }
        if word(56) != xxh3_64(&header[..56]) {
            return Err(BodyError::Damaged);
        }
        Ok(Self {
            shard: (word(8) >> 32) as u32,
            layout_hash: word(16),
            layout: word(24),
            head: word(32),
            len: word(40),
        })
    }

    /// The bytes of the layout.
    fn layout<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], BodyError> {
        let len = usize::try_from(self.layout).map_err(|_| BodyError::Damaged)?;
        bytes[Body::HEADER..].get(..len).ok_or(BodyError::Damaged)
    }

    /// The offsets, if the body is one of this layout.
    fn body(&self, layout: &Layout, bytes: &[u8]) -> Result<Body, BodyError> {
        let (body, len) = (self.offsets(layout)?, bytes.len());
        if body.len != len {
            let expected = body.len;
            return Err(BodyError::Len { expected, len });
        }
        Ok(body)
    }

    /// The offsets that the header claims, if the body is one of this layout.
    fn offsets(&self, layout: &Layout) -> Result<Body, BodyError> {
        let head = usize::try_from(self.head).map_err(|_| BodyError::Damaged)?;
        if self.layout_hash != layout.hash() {
            return Err(BodyError::Damaged);
        }
        let body = Body::new(layout, self.shard, head)?;
        if body.len as u64 != self.len {
            return Err(BodyError::Damaged);
        }
        Ok(body)
    }
}

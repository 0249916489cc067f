//! Decodes Zstandard pages of numbers, two blocks at a time.
//!
//! For floats and images, a compressor can use the frequency of bytes, but no repetitions. Their pages are blocks of
//! Huffman-coded literals, and decoding these is nearly the whole cost of reading such a data set. The library decodes
//! the four streams of a block side by side, and each stream waits for its own previous symbol. The streams of two
//! blocks keep a processor twice as busy. RFC 8878 defines the format and the terms.
//!
//! # Not supported
//! Frames with sequences (repetitions), with only one block, with a checksum or a dictionary, and all damaged frames.
//! The caller passes them to the library, which also reports errors. So this module does not describe errors, and
//! rejects a frame in doubt.

mod bits;
mod streams;
mod table;

use streams::{Block, FULL};
use table::Table;

const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Minimum length of a block in four streams.
const MIN_LENGTH: usize = 6;

/// Decodes frames, and reuses its memory from page to page.
#[derive(Default)]
pub(super) struct Literals {
    tables: [Box<Table>; 2],
    /// Index of the table of the last block.
    current: usize,
    /// Targets for blocks that are not full; in most frames only the last one.
    buffers: [BlockBuffer; 2],
}

impl Literals {
    /// Decodes `frame` into `dst`. Returns `false` if the library must decode it; `dst` is then arbitrary.
    pub(super) fn decode(&mut self, frame: &[u8], dst: &mut [u8]) -> bool {
        frame_blocks(frame, dst.len())
            .filter(|blocks| is_worth_it(blocks))
            .is_some_and(|blocks| self.decode_blocks(&blocks, dst).is_some())
    }

    fn decode_blocks(&mut self, blocks: &[Section<'_>], mut rest: &mut [u8]) -> Option<()> {
        let mut first: Option<(Coded<'_>, &mut [u8])> = None;
        let mut has_tree = false;
        for block in blocks {
            let (dst, after) = rest.split_at_mut_checked(block.length())?;
            rest = after;
            match *block {
                Section::Plain(bytes) => dst.copy_from_slice(bytes),
                Section::Same(byte, _) => dst.fill(byte),
                Section::Coded { tree, body, .. } => {
                    let body = if tree {
                        self.current ^= 1;
                        let length = self.tables[self.current].read(body)?;
                        body.get(length..)?
                    } else {
                        has_tree.then_some(body)?
                    };
                    has_tree = true;
                    let second = Coded {
                        table: self.current,
                        body,
                    };
                    match first.take() {
                        None => first = Some((second, dst)),
                        Some((first, first_dst)) => {
                            self.decode_two([(first, first_dst), (second, dst)])?;
                        }
                    }
                }
            }
        }
        if let Some((coded, dst)) = first {
            let mut block = Block::new(&self.tables[coded.table], coded.body, dst.len())?;
            with_full_block(dst, &mut self.buffers[0], |full| block.decode(full))?;
        }
        rest.is_empty().then_some(())
    }

    fn decode_two(&mut self, [(a, dst_a), (b, dst_b)]: [(Coded<'_>, &mut [u8]); 2]) -> Option<()> {
        let [buffer_a, buffer_b] = &mut self.buffers;
        let mut a = Block::new(&self.tables[a.table], a.body, dst_a.len())?;
        let mut b = Block::new(&self.tables[b.table], b.body, dst_b.len())?;
        with_full_block(dst_a, buffer_a, |full_a| {
            with_full_block(dst_b, buffer_b, |full_b| {
                streams::decode_side_by_side(&mut a, full_a, &mut b, full_b);
                a.decode(full_a)?;
                b.decode(full_b)
            })
        })
    }
}

/// A block that waits for a second one.
#[derive(Clone, Copy)]
struct Coded<'a> {
    table: usize,
    body: &'a [u8],
}

/// A full block, allocated on first use.
type BlockBuffer = Option<Box<[u8; FULL]>>;

/// Lets `decode` write a full block: into `dst` if it is full, else into `buffer`, from which the quarters are copied.
fn with_full_block(
    dst: &mut [u8],
    buffer: &mut BlockBuffer,
    decode: impl FnOnce(&mut [u8; FULL]) -> Option<()>,
) -> Option<()> {
    if let Ok(full) = dst.try_into() {
        return decode(full);
    }
    let buffer = buffer.get_or_insert_with(|| Box::new([0; FULL]));
    decode(buffer)?;
    let quarter = dst.len().div_ceil(4);
    for (dst, decoded) in dst.chunks_mut(quarter).zip(buffer.chunks(FULL / 4)) {
        dst.copy_from_slice(decoded.get(..dst.len())?);
    }
    Some(())
}

/// The literals section of a block that has no sequences.
enum Section<'a> {
    Plain(&'a [u8]),
    Same(u8, usize),
    Coded {
        /// Whether it begins with a Huffman tree. Otherwise it uses the tree of the previous block.
        tree: bool,
        body: &'a [u8],
        length: usize,
    },
}

impl Section<'_> {
    /// Length of the decoded literals in bytes.
    fn length(&self) -> usize {
        match *self {
            Self::Plain(bytes) => bytes.len(),
            Self::Same(_, length) | Self::Coded { length, .. } => length,
        }
    }
}

/// Two blocks at a time are faster than the library, one is not.
fn is_worth_it(blocks: &[Section<'_>]) -> bool {
    let coded = |block: &&Section<'_>| matches!(block, Section::Coded { .. });
    blocks.iter().filter(coded).count() > 1
}

/// The blocks of a frame, if all of them only have literals and the content size, if present, is `length`.
fn frame_blocks(frame: &[u8], length: usize) -> Option<Vec<Section<'_>>> {
    let (magic, rest) = frame.split_first_chunk()?;
    let (&descriptor, rest) = rest.split_first()?;
    let (has_checksum, dictionary) = (descriptor & 4 != 0, descriptor & 3);
    if *magic != MAGIC || has_checksum || dictionary != 0 || descriptor & 8 != 0 {
        return None;
    }
    let is_single_segment = descriptor & 32 != 0;
    let rest = if is_single_segment {
        rest
    } else {
        let (&window, rest) = rest.split_first()?;
        // The window must hold a full block. Otherwise blocks may be smaller.
        (window >> 3 >= 7).then_some(rest)?
    };
    let size_bytes = match descriptor >> 6 {
        0 => usize::from(is_single_segment),
        flag => 1 << flag,
    };
    let (size, mut rest) = rest.split_at_checked(size_bytes)?;
    let mut word = [0; 8];
    word[..size.len()].copy_from_slice(size);
    let size = u64::from_le_bytes(word) + if size_bytes == 2 { 256 } else { 0 };
    if size_bytes > 0 && size != length as u64 {
        return None;
    }
    let mut blocks = Vec::new();
    loop {
        let (&[a, b, c], after) = rest.split_first_chunk()?;
        let header = u32::from_le_bytes([a, b, c, 0]);
        let size = (header >> 3) as usize;
        let kind = header >> 1 & 3;
        let (body, after) = after.split_at_checked(if kind == 1 { 1 } else { size })?;
        blocks.push(match kind {
            0 => Section::Plain(body),
            1 => Section::Same(body[0], size),
            2 => section(body)?,
            _ => return None,
        });
        rest = after;
        if header & 1 == 1 {
            return rest.is_empty().then_some(blocks);
        }
    }
}

/// Parses a compressed block without sequences.
fn section(block: &[u8]) -> Option<Section<'_>> {
    let (kind, format) = (block.first()? & 3, block.first()? >> 2 & 3);
    let (header_length, bits) = match (kind, format) {
        (0 | 1, 0 | 2) => (1, 5),
        (0 | 1, 1) => (2, 12),
        (0 | 1, _) => (3, 20),
        // A single stream.
        (_, 0) => return None,
        (_, 1) => (3, 10),
        (_, 2) => (4, 14),
        _ => (5, 18),
    };
    let (header, rest) = block.split_at_checked(header_length)?;
    let mut word = [0; 8];
    word[..header_length].copy_from_slice(header);
    let word = u64::from_le_bytes(word) >> if header_length == 1 { 3 } else { 4 };
    let field = |word: u64| (word & ((1 << bits) - 1)) as usize;
    let length = field(word);
    let stored = match kind {
        0 => length,
        1 => 1,
        _ => field(word >> bits),
    };
    let (body, sequences) = rest.split_at_checked(stored)?;
    if sequences != [0] || length > FULL || kind > 1 && length < MIN_LENGTH {
        return None;
    }
    Some(match kind {
        0 => Section::Plain(body),
        1 => Section::Same(body[0], length),
        _ => Section::Coded {
            tree: kind == 2,
            body,
            length,
        },
    })
}

#[cfg(test)]
mod tests;

//! Pages of numbers in the format of Zstandard, two blocks at once.
//!
//! What floats and images leave to a compressor is the frequency of bytes, not what repeats: their pages are blocks of
//! Huffman-coded literals, and reading these is nearly all that reading such a data set costs. The library decodes the
//! four streams of a block side by side, each of which waits for its own last symbol; the streams of two blocks keep a
//! processor twice as busy. RFC 8878 has the format, and its names are used here.
//!
//! # Not here
//! Frames with sequences (what repeats), with one block only, with a checksum or a dictionary, and all that is damaged: the
//! caller gives them to the library, whose errors are the reader's. So nothing here says what is wrong with a page, and a
//! doubt is an answer.

mod bits;
mod streams;
mod table;

use streams::{Block, FULL};
use table::Table;

const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Least bytes of a block in four streams.
const LEAST: usize = 6;

/// Memory that is used again from page to page.
#[derive(Default)]
pub(super) struct Literals {
    tables: [Box<Table>; 2],
    /// Which of the tables is that of the last block.
    current: usize,
    /// Where blocks are decoded that are not full: in most frames that is the last one.
    rooms: [Room; 2],
}

impl Literals {
    /// Fills `room` with what `frame` holds. `false` if that is for the library, and `room` holds anything.
    pub(super) fn decode(&mut self, frame: &[u8], room: &mut [u8]) -> bool {
        frame_blocks(frame, room.len())
            .filter(|blocks| is_worth_it(blocks))
            .is_some_and(|blocks| self.decode_blocks(&blocks, room).is_some())
    }

    fn decode_blocks(&mut self, blocks: &[Section<'_>], mut room: &mut [u8]) -> Option<()> {
        let mut first: Option<(Coded<'_>, &mut [u8])> = None;
        let mut has_tree = false;
        for block in blocks {
            let (own, rest) = room.split_at_mut_checked(block.length())?;
            room = rest;
            match *block {
                Section::Plain(bytes) => own.copy_from_slice(bytes),
                Section::Same(byte, _) => own.fill(byte),
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
                        None => first = Some((second, own)),
                        Some((first, room)) => self.decode_two([(first, room), (second, own)])?,
                    }
                }
            }
        }
        if let Some((coded, own)) = first {
            let mut block = Block::new(&self.tables[coded.table], coded.body, own.len())?;
            in_full(own, &mut self.rooms[0], |room| block.decode(room))?;
        }
        room.is_empty().then_some(())
    }

    fn decode_two(&mut self, [(a, own_a), (b, own_b)]: [(Coded<'_>, &mut [u8]); 2]) -> Option<()> {
        let [room_a, room_b] = &mut self.rooms;
        let mut a = Block::new(&self.tables[a.table], a.body, own_a.len())?;
        let mut b = Block::new(&self.tables[b.table], b.body, own_b.len())?;
        in_full(own_a, room_a, |room_a| {
            in_full(own_b, room_b, |room_b| {
                streams::decode_side_by_side(&mut a, room_a, &mut b, room_b);
                a.decode(room_a)?;
                b.decode(room_b)
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

/// A full block, once one is needed.
type Room = Option<Box<[u8; FULL]>>;

/// Has `decode` write a full block: `own` if that is one, else `room`, whose four quarters begin with those of `own`.
fn in_full(
    own: &mut [u8],
    room: &mut Room,
    decode: impl FnOnce(&mut [u8; FULL]) -> Option<()>,
) -> Option<()> {
    if let Ok(full) = own.try_into() {
        return decode(full);
    }
    let room = room.get_or_insert_with(|| Box::new([0; FULL]));
    decode(room)?;
    let quarter = own.len().div_ceil(4);
    for (own, decoded) in own.chunks_mut(quarter).zip(room.chunks(FULL / 4)) {
        own.copy_from_slice(decoded.get(..own.len())?);
    }
    Some(())
}

/// The literals of a block, which are all of it.
enum Section<'a> {
    Plain(&'a [u8]),
    Same(u8, usize),
    Coded {
        /// It begins with a Huffman tree; else that of the block before is its own, too.
        tree: bool,
        body: &'a [u8],
        length: usize,
    },
}

impl Section<'_> {
    /// Of what it holds, in bytes.
    fn length(&self) -> usize {
        match *self {
            Self::Plain(bytes) => bytes.len(),
            Self::Same(_, length) | Self::Coded { length, .. } => length,
        }
    }
}

/// Two blocks at once are quicker than the library, one is not.
fn is_worth_it(blocks: &[Section<'_>]) -> bool {
    let coded = |block: &&Section<'_>| matches!(block, Section::Coded { .. });
    blocks.iter().filter(coded).count() > 1
}

/// The blocks of a frame that holds literals only, and `length` bytes if it says how many, if it is one.
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
        // Of at least as much as a full block: else blocks may not be full either.
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

/// A compressed block without sequences.
fn section(block: &[u8]) -> Option<Section<'_>> {
    let (kind, format) = (block.first()? & 3, block.first()? >> 2 & 3);
    let (header_length, bits) = match (kind, format) {
        (0 | 1, 0 | 2) => (1, 5),
        (0 | 1, 1) => (2, 12),
        (0 | 1, _) => (3, 20),
        // One stream only.
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
    if sequences != [0] || length > FULL || kind > 1 && length < LEAST {
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

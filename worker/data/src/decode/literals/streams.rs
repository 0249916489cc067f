//! The four streams of a block, each of which holds a quarter of it, and those of two blocks side by side.

use super::{
    bits::Bits,
    table::{MOST_BITS, Table},
};

/// Most bytes that a block holds.
pub(super) const FULL: usize = 1 << 17;
/// Where the quarters of a block begin that is decoded as if it was full.
const QUARTER: usize = FULL / 4;
/// Symbols that 64 bits hold in any case, if up to 7 bits have been read.
const SYMBOLS: usize = 5;
/// Bytes by which a stream goes back at most for so many.
const STEP: usize = 7;

/// A block under way.
pub(super) struct Block<'a> {
    table: &'a Table,
    streams: [Stream<'a>; 4],
    /// Symbols that have been decoded of each stream.
    done: usize,
    /// How many there are.
    lengths: [usize; 4],
}

/// A stream of which all has been read that is behind `at`, and of the eight bytes from there the bits that are not in
/// `bits` any more.
#[derive(Clone, Copy)]
struct Stream<'a> {
    bytes: &'a [u8],
    at: u32,
    /// The next ones are the highest; the lowest that is set marks the end of those that are valid.
    bits: u64,
}

impl<'a> Stream<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let at = u32::try_from(bytes.len().checked_sub(8)?).ok()?;
        let mark = bytes.last()?.checked_ilog2()?;
        let bits = (word(bytes, at) | 1) << (8 - mark);
        Some(Self { bytes, at, bits })
    }

    fn rest(self) -> Option<Bits<'a>> {
        let valid = 64 - self.bits.trailing_zeros() as usize;
        Bits::with_left(self.bytes, (self.at as usize * 8 + valid).cast_signed())
    }
}

#[inline]
fn word(bytes: &[u8], at: u32) -> u64 {
    let at = at as usize;
    let word = bytes[at..at + 8].try_into();
    u64::from_le_bytes(word.unwrap_or_default())
}

/// Has blocks go on side by side by [`SYMBOLS`] symbols of each stream at a time, as often as all can. Each stream's bits
/// are a variable of its own: the compiler keeps as many of them in registers as there are.
macro_rules! go_on {
    ($($block:ident by $streams:ident into $room:ident: $($index:literal as $bits:ident),+;)+) => {
        $(let mut $streams = $block.streams;)+
        $($(let mut $bits = $streams[$index].bits;)+)+
        let mut done = [$($block.done),+][0];
        loop {
            let turns = [$($block.turns()),+].into_iter().min().unwrap_or(0);
            if turns == 0 {
                break;
            }
            for _ in 0..turns {
                // Never: it spares the check of each index.
                if done + SYMBOLS > QUARTER {
                    break;
                }
                for symbol in done..done + SYMBOLS {
                    $($(
                        let entry = $block.table.0[($bits >> (64 - MOST_BITS)) as usize];
                        $bits <<= entry & 63;
                        $room[$index * QUARTER + symbol] = (entry >> 8) as u8;
                    )+)+
                }
                $($(
                    let read = $bits.trailing_zeros();
                    let stream = &mut $streams[$index];
                    stream.at = stream.at.wrapping_sub(read / 8);
                    $bits = (word(stream.bytes, stream.at) | 1) << (read % 8);
                )+)+
                done += SYMBOLS;
            }
            $(($block.streams, $block.done) = ($streams, done);)+
        }
        $($($block.streams[$index].bits = $bits;)+)+
    };
}

/// Two blocks that are both at their beginning, as far as both go.
pub(super) fn decode_side_by_side(
    a: &mut Block<'_>,
    room_a: &mut [u8; FULL],
    b: &mut Block<'_>,
    room_b: &mut [u8; FULL],
) {
    go_on! {
        a by streams_a into room_a: 0 as a0, 1 as a1, 2 as a2, 3 as a3;
        b by streams_b into room_b: 0 as b0, 1 as b1, 2 as b2, 3 as b3;
    }
}

impl<'a> Block<'a> {
    /// Of which `body` has the lengths of the first three streams and all four.
    pub(super) fn new(table: &'a Table, body: &'a [u8], length: usize) -> Option<Self> {
        let (&[a0, a1, b0, b1, c0, c1], mut rest) = body.split_first_chunk()?;
        let mut next = |length: [u8; 2]| {
            let (stream, after) = rest.split_at_checked(u16::from_le_bytes(length).into())?;
            rest = after;
            Stream::new(stream)
        };
        let (a, b, c) = (next([a0, a1])?, next([b0, b1])?, next([c0, c1])?);
        let streams = [a, b, c, Stream::new(rest)?];
        let quarter = length.div_ceil(4);
        let last = length.checked_sub(3 * quarter)?;
        let lengths = [quarter, quarter, quarter, last];
        Some(Self {
            table,
            streams,
            done: 0,
            lengths,
        })
    }

    /// How often all streams can go on by [`SYMBOLS`] without a look at where they end.
    fn turns(&self) -> usize {
        let bytes = self.streams.iter().map(|stream| stream.at as usize / STEP);
        let symbols =
            (self.lengths.iter()).map(|length| length.saturating_sub(self.done) / SYMBOLS);
        bytes.chain(symbols).min().unwrap_or(0)
    }

    /// Decodes what is left. Nothing if the streams hold less, or more.
    pub(super) fn decode(&mut self, room: &mut [u8; FULL]) -> Option<()> {
        go_on! {
            self by streams into room: 0 as a, 1 as b, 2 as c, 3 as d;
        }
        for ((stream, length), room) in
            (self.streams.iter().zip(self.lengths)).zip(room.chunks_mut(QUARTER))
        {
            let mut bits = stream.rest()?;
            for symbol in room.get_mut(self.done..length)? {
                let entry = self.table.0[bits.peek(MOST_BITS)];
                *symbol = (entry >> 8) as u8;
                bits.skip(u32::from(entry & 0xFF));
            }
            if bits.left() != 0 {
                return None;
            }
        }
        Some(())
    }
}

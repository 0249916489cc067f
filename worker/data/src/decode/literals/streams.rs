//! The four streams of a block, each for a quarter of it, and those of two blocks side by side.

use super::{
    bits::Bits,
    table::{MAX_BITS, Table},
};

/// Maximum length of a block.
pub(super) const FULL: usize = 1 << 17;
/// Length of a quarter of a full block.
const QUARTER: usize = FULL / 4;
/// Symbols that 64 bits always hold, if up to 7 bits are consumed.
const SYMBOLS: usize = 5;
/// Maximum bytes that a stream consumes for [`SYMBOLS`] symbols.
const STEP: usize = 7;

/// A block that is being decoded.
pub(super) struct Block<'a> {
    table: &'a Table,
    streams: [Stream<'a>; 4],
    /// Decoded symbols of each stream.
    done: usize,
    /// Symbols of each stream.
    lengths: [usize; 4],
}

/// A stream that is consumed after `pos`. Of the eight bytes from `pos` on, the bits that are not in `bits` are
/// consumed as well.
#[derive(Clone, Copy)]
struct Stream<'a> {
    bytes: &'a [u8],
    pos: u32,
    /// The next bits are the highest. The lowest set bit marks the end of the valid ones.
    bits: u64,
}

impl<'a> Stream<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let pos = u32::try_from(bytes.len().checked_sub(8)?).ok()?;
        let mark = bytes.last()?.checked_ilog2()?;
        let bits = (word(bytes, pos) | 1) << (8 - mark);
        Some(Self { bytes, pos, bits })
    }

    fn rest(self) -> Option<Bits<'a>> {
        let valid = 64 - self.bits.trailing_zeros() as usize;
        Bits::with_left(self.bytes, (self.pos as usize * 8 + valid).cast_signed())
    }
}

#[inline]
fn word(bytes: &[u8], pos: u32) -> u64 {
    let pos = pos as usize;
    let word = bytes[pos..pos + 8].try_into();
    u64::from_le_bytes(word.unwrap_or_default())
}

/// Decodes blocks side by side, [`SYMBOLS`] symbols of each stream at a time, as long as all streams can. The bits of
/// each stream are in a separate variable, so that the compiler can keep them in registers.
macro_rules! decode_rounds {
    ($($block:ident by $streams:ident into $dst:ident: $($index:literal as $bits:ident),+;)+) => {
        $(let mut $streams = $block.streams;)+
        $($(let mut $bits = $streams[$index].bits;)+)+
        let mut done = [$($block.done),+][0];
        loop {
            let turns = [$($block.turns()),+].into_iter().min().unwrap_or(0);
            if turns == 0 {
                break;
            }
            for _ in 0..turns {
                // Never happens, and removes the bounds check of each index.
                if done + SYMBOLS > QUARTER {
                    break;
                }
                for symbol in done..done + SYMBOLS {
                    $($(
                        let entry = $block.table.0[($bits >> (64 - MAX_BITS)) as usize];
                        $bits <<= entry & 63;
                        $dst[$index * QUARTER + symbol] = (entry >> 8) as u8;
                    )+)+
                }
                $($(
                    let read = $bits.trailing_zeros();
                    let stream = &mut $streams[$index];
                    stream.pos = stream.pos.wrapping_sub(read / 8);
                    $bits = (word(stream.bytes, stream.pos) | 1) << (read % 8);
                )+)+
                done += SYMBOLS;
            }
            $(($block.streams, $block.done) = ($streams, done);)+
        }
        $($($block.streams[$index].bits = $bits;)+)+
    };
}

/// Decodes two blocks side by side from their start, as far as both can.
pub(super) fn decode_side_by_side(
    a: &mut Block<'_>,
    dst_a: &mut [u8; FULL],
    b: &mut Block<'_>,
    dst_b: &mut [u8; FULL],
) {
    decode_rounds! {
        a by streams_a into dst_a: 0 as a0, 1 as a1, 2 as a2, 3 as a3;
        b by streams_b into dst_b: 0 as b0, 1 as b1, 2 as b2, 3 as b3;
    }
}

impl<'a> Block<'a> {
    /// `body` holds the lengths of the first three streams, and all four streams.
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

    /// How often all streams can decode [`SYMBOLS`] symbols without a check for their end.
    fn turns(&self) -> usize {
        let bytes = self.streams.iter().map(|stream| stream.pos as usize / STEP);
        let symbols =
            (self.lengths.iter()).map(|length| length.saturating_sub(self.done) / SYMBOLS);
        bytes.chain(symbols).min().unwrap_or(0)
    }

    /// Decodes the rest. `None` if the streams are too short or too long.
    pub(super) fn decode(&mut self, dst: &mut [u8; FULL]) -> Option<()> {
        decode_rounds! {
            self by streams into dst: 0 as a, 1 as b, 2 as c, 3 as d;
        }
        for ((stream, length), dst) in
            (self.streams.iter().zip(self.lengths)).zip(dst.chunks_mut(QUARTER))
        {
            let mut bits = stream.rest()?;
            for symbol in dst.get_mut(self.done..length)? {
                let entry = self.table.0[bits.peek(MAX_BITS)];
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

//! A page in the format of Snappy as the parts that it consists of, without a copy of them.
//!
//! What a compressor cannot make smaller lies in the page as it was, in runs of up to 64 KiB with a few bytes between them.
//! Whoever can do with such runs has no need to decompress. Source: format_description.txt of Snappy.
//!
//! # Not here
//! Pages that repeat themselves much, and rows that are long beside a run: more than an eighth of the page would be copied.
//! The caller decompresses these, and all that is damaged.

use std::ops::Range;

use crate::thrift::Compact;

/// The content of a page. See the module.
#[derive(Debug)]
pub(super) struct Content<'a> {
    /// What the page lies in.
    bytes: &'a [u8],
    /// What the page repeats, and what was put together of several parts.
    side: Vec<u8>,
    /// At most so many bytes of that: beyond it is better to decompress.
    most: usize,
    /// In the order of the content, of which they hold all.
    parts: Vec<Part>,
}

/// Bytes of the content that lie together.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Where they begin and end in the content.
    start: usize,
    end: usize,
    /// Where the first of them lies. Places count on from the end of `bytes` into `side`.
    place: usize,
}

/// With shorter parts, on average, it is better to decompress, too.
const SHORT: usize = 256;

/// Of a page, this part at most is copied.
pub(super) const COPIED: usize = 8;

impl<'a> Content<'a> {
    /// The content, of so many bytes, of a page of `bytes`: its first `plain` bytes are not compressed. Nothing if the page is
    /// damaged, or of too many parts.
    pub(super) fn new(
        bytes: &'a [u8],
        page: Range<usize>,
        plain: usize,
        length: usize,
    ) -> Option<Self> {
        let mut content = Self {
            bytes,
            side: Vec::new(),
            most: page.len() / COPIED,
            parts: Vec::new(),
        };
        content.add(plain, page.start);
        let packed = page.start.checked_add(plain)?;
        let mut rest = Compact::new(bytes.get(packed..page.end)?);
        // Without a byte more nothing is compressed.
        let more = if packed < page.end { rest.varint()? } else { 0 };
        if (plain as u64).checked_add(more)? != length as u64 {
            return None;
        }
        let mut at = packed + rest.at();
        while at < page.end {
            if content.parts.len() > 16 + page.len() / SHORT {
                return None;
            }
            let tag = bytes[at];
            let high = usize::from(tag >> 2);
            // Bytes of the number behind the tag.
            let wide = match tag & 3 {
                0 => high.saturating_sub(59),
                kind => [1, 2, 4][usize::from(kind) - 1],
            };
            let number = bytes[at + 1..page.end].get(..wide)?;
            let number = (number.iter().rev()).fold(0, |all, byte| all << 8 | usize::from(*byte));
            at += 1 + wide;
            match tag & 3 {
                0 => {
                    let length = if wide == 0 { high } else { number } + 1;
                    if length > page.end - at {
                        return None;
                    }
                    content.add(length, at);
                    at += length;
                }
                1 => content.repeat((high >> 3) << 8 | number, (high & 7) + 4, plain)?,
                _ => content.repeat(number, high + 1, plain)?,
            }
        }
        (content.length() == length).then_some(content)
    }

    /// Bytes of the parts.
    fn length(&self) -> usize {
        self.parts.last().map_or(0, |part| part.end)
    }

    fn add(&mut self, length: usize, place: usize) {
        if length > 0 {
            let start = self.length();
            let end = start + length;
            self.parts.push(Part { start, end, place });
        }
    }

    /// Adds the bytes that stand `offset` before the end, and none before `first`. What is added may repeat itself.
    fn repeat(&mut self, offset: usize, length: usize, first: usize) -> Option<()> {
        let end = self.length();
        let from = end
            .checked_sub(offset)
            .filter(|from| *from >= first && offset > 0)?;
        let start = self.side.len();
        if start + length > self.most {
            return None;
        }
        for number in 0..length {
            let byte = match number.checked_sub(offset) {
                Some(again) => self.side[start + again],
                None => {
                    let at = from + number;
                    self.byte(self.parts.partition_point(|part| part.end <= at), at)?
                }
            };
            self.side.push(byte);
        }
        self.add(length, self.bytes.len() + start);
        Some(())
    }

    /// Where `length` bytes from `at` on lie, if all of them are in that part.
    fn place(&self, part: usize, at: usize, length: usize) -> Option<usize> {
        let part = self.parts.get(part)?;
        (part.start <= at && at + length <= part.end).then(|| part.place + (at - part.start))
    }

    /// The bytes of a place.
    fn slice(&self, place: usize, length: usize) -> &[u8] {
        match place.checked_sub(self.bytes.len()) {
            Some(place) => &self.side[place..place + length],
            None => &self.bytes[place..place + length],
        }
    }

    /// The bytes of the first part.
    pub(super) fn head(&self) -> &[u8] {
        let part = self.parts.first();
        part.map_or(&[], |part| self.slice(part.place, part.end))
    }

    /// A byte of a part.
    fn byte(&self, part: usize, at: usize) -> Option<u8> {
        Some(self.slice(self.place(part, at, 1)?, 1)[0])
    }

    /// The four bytes from `at` on, which is in that part or behind it: what precedes a row.
    pub(super) fn prefix(&self, part: usize, at: usize) -> Option<[u8; 4]> {
        let mut part = self.part(part, at);
        if let Some(place) = self.place(part, at, 4) {
            return self.slice(place, 4).try_into().ok();
        }
        let mut prefix = [0; 4];
        for (at, byte) in (at..).zip(&mut prefix) {
            part = self.part(part, at);
            *byte = self.byte(part, at)?;
        }
        Some(prefix)
    }

    /// The places of `count` rows from `start` on, behind their prefix, and what lies behind the end of the bytes. Nothing if a
    /// row has another prefix.
    pub(super) fn rows(
        mut self,
        start: usize,
        count: usize,
        prefix: [u8; 4],
    ) -> Option<(Box<[u32]>, Vec<u8>)> {
        let size = u32::from_le_bytes(prefix) as usize;
        let step = prefix.len() + size;
        if start.checked_add(count.checked_mul(step)?)? > self.length() {
            return None;
        }
        let mut places = Vec::with_capacity(count);
        let mut part = 0;
        for at in (0..count).map(|row| start + row * step) {
            part = self.part(part, at);
            if self.prefix(part, at)? != prefix {
                return None;
            }
            let at = at + prefix.len();
            part = self.part(part, at);
            let place = self.together(part, at, size)?;
            places.push(u32::try_from(place).ok()?);
        }
        Some((places.into(), self.side))
    }

    /// The part that holds byte `at`, which is that part or one behind it.
    fn part(&self, mut part: usize, at: usize) -> usize {
        while self.parts.get(part).is_some_and(|part| part.end <= at) {
            part += 1;
        }
        part
    }

    /// The place of bytes that begin in a part; they are copied if they go on in others.
    fn together(&mut self, part: usize, at: usize, length: usize) -> Option<usize> {
        if let Some(place) = self.place(part, at, length) {
            return Some(place);
        }
        if self.side.len() + length > self.most {
            return None;
        }
        let copy = self.bytes.len() + self.side.len();
        let (mut part, mut at, end) = (part, at, at + length);
        while at < end {
            let taken = self.parts.get(part)?.end.min(end) - at;
            let from = self.place(part, at, taken)?;
            match from.checked_sub(self.bytes.len()) {
                Some(from) => self.side.extend_from_within(from..from + taken),
                None => self.side.extend_from_slice(&self.bytes[from..from + taken]),
            }
            (part, at) = (part + 1, at + taken);
        }
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OUTSIDE: &[u8] = b"what lies around the page";

    /// A page between other bytes, of which the first `plain` of its content are not compressed.
    fn page(content: &[u8], plain: usize) -> (Vec<u8>, Range<usize>) {
        let (plain, packed) = content.split_at(plain);
        let packed = snap::raw::Encoder::new().compress_vec(packed).unwrap();
        let bytes = [OUTSIDE, plain, &packed, OUTSIDE].concat();
        let end = bytes.len() - OUTSIDE.len();
        (bytes, OUTSIDE.len()..end)
    }

    /// All bytes of a content.
    fn joined(content: &Content<'_>) -> Vec<u8> {
        let parts = content.parts.iter();
        parts
            .flat_map(|part| content.slice(part.place, part.end - part.start))
            .copied()
            .collect()
    }

    /// So much noise at first, and then noise in which some of what came before is repeated now and then.
    fn with_copies(first: usize) -> impl Strategy<Value = Vec<u8>> {
        let piece = (any::<u64>(), 0_usize..5_000, 0_usize..3_000, 0_usize..100);
        prop::collection::vec(piece, 0..20).prop_map(move |pieces| {
            let mut first_noise = elasticrun_core::random::Random::from_seed(first as u64);
            let mut all: Vec<u8> = (0..first).map(|_| first_noise.next_u64() as u8).collect();
            for (seed, length, offset, copied) in pieces {
                let mut random = elasticrun_core::random::Random::from_seed(seed);
                all.extend((0..length).map(|_| random.next_u64() as u8));
                let from = all.len().saturating_sub(offset);
                let copied = all[from..]
                    .iter()
                    .copied()
                    .take(copied)
                    .collect::<Vec<u8>>();
                all.extend(copied);
            }
            all
        })
    }

    proptest! {
        /// What is repeated, 2,000 bytes at most, is less than an eighth.
        #[test]
        fn parts_are_the_content(content in with_copies(20_000), plain in 0_usize..50) {
            let (bytes, page) = page(&content, plain);
            let parts = Content::new(&bytes, page, plain, content.len()).unwrap();
            prop_assert_eq!(joined(&parts), content);
        }

        /// The same as of the library, or nothing.
        #[test]
        fn damaged_pages_are_as_the_library_has_them(
            content in with_copies(0),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let (mut bytes, page) = page(&content, 0);
            for (place, byte) in damage {
                bytes[OUTSIDE.len() + place.index(page.len())] = byte;
            }
            if let Some(parts) = Content::new(&bytes, page.clone(), 0, content.len()) {
                let decoded = snap::raw::Decoder::new().decompress_vec(&bytes[page]).unwrap();
                prop_assert!(joined(&parts) == decoded);
            }
        }

        #[test]
        fn rows_are_found_wherever_they_lie(
            size in prop_oneof![0_usize..1_000, 0_usize..20_000],
            count in 0_usize..300,
            start in 0_usize..20,
            seed in any::<u64>(),
        ) {
            let mut random = elasticrun_core::random::Random::from_seed(seed);
            let mut noise = |length: usize| (0..length).map(|_| random.next_u64() as u8).collect::<Vec<u8>>();
            let prefix = (size as u32).to_le_bytes();
            let head = noise(start);
            let rows: Vec<Vec<u8>> = (0..count).map(|_| noise(size)).collect();
            let lines = rows.iter().flat_map(|row| [&prefix[..], row].concat());
            let content: Vec<u8> = head.iter().copied().chain(lines).collect();
            let (bytes, page) = page(&content, 0);
            let new = || Content::new(&bytes, page.clone(), 0, content.len());
            // Of rows that are short much is a prefix, of which the page has one; long ones are cut by the ends of runs.
            let Some(parts) = new() else {
                prop_assert!(size < 2 * SHORT);
                return Ok(());
            };
            let is_cut = |row: &usize| {
                let at = start + row * (4 + size) + 4;
                !(parts.parts.iter()).any(|part| part.start <= at && at + size <= part.end)
            };
            let copied = parts.side.len() + (0..count).filter(is_cut).count() * size;
            let fits = copied <= parts.most;
            let found = parts.rows(start, count, prefix);
            prop_assert_eq!(found.is_some(), fits);
            let Some((places, side)) = found else {
                return Ok(());
            };
            prop_assert_eq!(places.len(), count);
            let all = [&bytes[..], &side].concat();
            for (place, row) in places.iter().zip(&rows) {
                prop_assert_eq!(&all[*place as usize..][..size], &row[..]);
            }
            prop_assert!(new().unwrap().rows(start, count + 1, prefix).is_none(), "one more");
            if count > 0 {
                prop_assert!(new().unwrap().rows(start, count, [1, 2, 3, 9]).is_none(), "prefix");
            }
        }
    }

    #[test]
    fn a_page_may_be_plain_as_a_whole() {
        let parts = |plain, length| Content::new(OUTSIDE, 2..12, plain, length);
        assert_eq!(joined(&parts(10, 10).unwrap()), OUTSIDE[2..12]);
        assert!(parts(10, 11).is_none() && parts(11, 11).is_none());
        assert!(Content::new(OUTSIDE, 2..OUTSIDE.len() + 1, 4, 10).is_none());
    }

    #[test]
    fn what_repeats_itself_is_written_out() {
        let mut content = b"abababababab".to_vec();
        content.extend([7; 30]);
        content.extend((0..=u8::MAX).chain((0..=u8::MAX).rev()));
        let (bytes, page) = page(&content, 0);
        let parts = Content::new(&bytes, page, 0, content.len()).unwrap();
        assert!(!parts.side.is_empty());
        assert_eq!(joined(&parts), content);
    }

    #[test]
    fn a_page_that_is_much_smaller_is_refused() {
        let content: Vec<u8> = (0..20_000_u32)
            .flat_map(|at| (at / 3).to_le_bytes())
            .collect();
        let (bytes, page) = page(&content, 0);
        assert!(Content::new(&bytes, page, 0, content.len()).is_none());
    }
}

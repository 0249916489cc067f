//! Splits a Snappy page into its parts, without copying them.
//!
//! Data that the compressor could not reduce is stored verbatim, in runs of up to 64 KiB with a few bytes between
//! them. A caller that can use such runs need not decompress. Source: format_description.txt of Snappy.
//!
//! # Not supported
//! Pages with much repetition, and rows that are long compared to a run: more than an eighth of the page would be
//! copied. The caller decompresses these, as well as damaged pages.

use std::ops::Range;

use crate::thrift::Compact;

/// The content of a page, as parts.
#[derive(Debug)]
pub(super) struct SnappyContent<'a> {
    /// The bytes that contain the page.
    bytes: &'a [u8],
    /// Repeated bytes, and bytes that were joined from several parts.
    extra: Vec<u8>,
    /// Maximum length of `extra`; beyond it, decompressing is better.
    max_extra: usize,
    /// Sorted; together they hold the whole content.
    parts: Vec<Part>,
}

/// Contiguous bytes of the content.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Start and end in the content.
    start: usize,
    end: usize,
    /// Offset of the first byte. Offsets beyond the end of `bytes` point into `extra`.
    offset: usize,
}

/// With shorter parts on average, decompressing is better as well.
const MIN_AVERAGE_PART: usize = 256;

/// At most 1/8 of a page is copied.
pub(super) const MAX_COPIED_DIVISOR: usize = 8;

impl<'a> SnappyContent<'a> {
    /// The content, of `length` bytes, of a page of `bytes`. Its first `plain` bytes are not compressed. `None` if the
    /// page is damaged, or has too many parts.
    pub(super) fn new(
        bytes: &'a [u8],
        page: Range<usize>,
        plain: usize,
        length: usize,
    ) -> Option<Self> {
        let mut content = Self {
            bytes,
            extra: Vec::new(),
            max_extra: page.len() / MAX_COPIED_DIVISOR,
            parts: Vec::new(),
        };
        content.add(plain, page.start);
        let packed = page.start.checked_add(plain)?;
        let mut rest = Compact::new(bytes.get(packed..page.end)?);
        // Without further bytes, nothing is compressed.
        let more = if packed < page.end { rest.varint()? } else { 0 };
        if (plain as u64).checked_add(more)? != length as u64 {
            return None;
        }
        let mut pos = packed + rest.position();
        while pos < page.end {
            if content.parts.len() > 16 + page.len() / MIN_AVERAGE_PART {
                return None;
            }
            let tag = bytes[pos];
            let high = usize::from(tag >> 2);
            // Bytes of the number after the tag.
            let wide = match tag & 3 {
                0 => high.saturating_sub(59),
                kind => [1, 2, 4][usize::from(kind) - 1],
            };
            let number = bytes[pos + 1..page.end].get(..wide)?;
            let number = (number.iter().rev()).fold(0, |all, byte| all << 8 | usize::from(*byte));
            pos += 1 + wide;
            match tag & 3 {
                0 => {
                    let length = if wide == 0 { high } else { number } + 1;
                    if length > page.end - pos {
                        return None;
                    }
                    content.add(length, pos);
                    pos += length;
                }
                1 => content.repeat((high >> 3) << 8 | number, (high & 7) + 4, plain)?,
                _ => content.repeat(number, high + 1, plain)?,
            }
        }
        (content.length() == length).then_some(content)
    }

    /// Total length of the parts.
    fn length(&self) -> usize {
        self.parts.last().map_or(0, |part| part.end)
    }

    fn add(&mut self, length: usize, offset: usize) {
        if length > 0 {
            let start = self.length();
            let end = start + length;
            self.parts.push(Part { start, end, offset });
        }
    }

    /// Appends `length` bytes from `offset` before the end, but not from before `first`. The source may overlap the
    /// result.
    fn repeat(&mut self, offset: usize, length: usize, first: usize) -> Option<()> {
        let end = self.length();
        let from = end
            .checked_sub(offset)
            .filter(|from| *from >= first && offset > 0)?;
        let start = self.extra.len();
        if start + length > self.max_extra {
            return None;
        }
        for number in 0..length {
            let byte = match number.checked_sub(offset) {
                Some(again) => self.extra[start + again],
                None => {
                    let pos = from + number;
                    self.byte(self.parts.partition_point(|part| part.end <= pos), pos)?
                }
            };
            self.extra.push(byte);
        }
        self.add(length, self.bytes.len() + start);
        Some(())
    }

    /// The offset of `length` bytes from `pos` on, if all of them are in the given part.
    fn offset(&self, part: usize, pos: usize, length: usize) -> Option<usize> {
        let part = self.parts.get(part)?;
        (part.start <= pos && pos + length <= part.end).then(|| part.offset + (pos - part.start))
    }

    /// The bytes at an offset.
    fn slice(&self, offset: usize, length: usize) -> &[u8] {
        match offset.checked_sub(self.bytes.len()) {
            Some(offset) => &self.extra[offset..offset + length],
            None => &self.bytes[offset..offset + length],
        }
    }

    /// The bytes of the first part.
    pub(super) fn head(&self) -> &[u8] {
        let part = self.parts.first();
        part.map_or(&[], |part| self.slice(part.offset, part.end))
    }

    /// A byte of a part.
    fn byte(&self, part: usize, pos: usize) -> Option<u8> {
        Some(self.slice(self.offset(part, pos, 1)?, 1)[0])
    }

    /// The four bytes from `pos` on, which is in the given part or after it: the prefix of a row.
    pub(super) fn prefix(&self, part: usize, pos: usize) -> Option<[u8; 4]> {
        let mut part = self.part(part, pos);
        if let Some(offset) = self.offset(part, pos, 4) {
            return self.slice(offset, 4).try_into().ok();
        }
        let mut prefix = [0; 4];
        for (pos, byte) in (pos..).zip(&mut prefix) {
            part = self.part(part, pos);
            *byte = self.byte(part, pos)?;
        }
        Some(prefix)
    }

    /// The offsets of `count` rows from `start` on, each after its prefix, and `extra`. `None` if a row has another
    /// prefix.
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
        let mut offsets = Vec::with_capacity(count);
        let mut part = 0;
        for pos in (0..count).map(|row| start + row * step) {
            part = self.part(part, pos);
            if self.prefix(part, pos)? != prefix {
                return None;
            }
            let pos = pos + prefix.len();
            part = self.part(part, pos);
            let offset = self.contiguous(part, pos, size)?;
            offsets.push(u32::try_from(offset).ok()?);
        }
        Some((offsets.into(), self.extra))
    }

    /// The part that contains byte `pos`, which is the given part or a later one.
    fn part(&self, mut part: usize, pos: usize) -> usize {
        while self.parts.get(part).is_some_and(|part| part.end <= pos) {
            part += 1;
        }
        part
    }

    /// The offset of bytes that begin in a part. They are copied if they continue in other parts.
    fn contiguous(&mut self, part: usize, pos: usize, length: usize) -> Option<usize> {
        if let Some(offset) = self.offset(part, pos, length) {
            return Some(offset);
        }
        if self.extra.len() + length > self.max_extra {
            return None;
        }
        let copy = self.bytes.len() + self.extra.len();
        let (mut part, mut pos, end) = (part, pos, pos + length);
        while pos < end {
            let taken = self.parts.get(part)?.end.min(end) - pos;
            let from = self.offset(part, pos, taken)?;
            match from.checked_sub(self.bytes.len()) {
                Some(from) => self.extra.extend_from_within(from..from + taken),
                None => self
                    .extra
                    .extend_from_slice(&self.bytes[from..from + taken]),
            }
            (part, pos) = (part + 1, pos + taken);
        }
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OUTSIDE: &[u8] = b"what lies around the page";

    /// A page between other bytes. The first `plain` bytes of its content are not compressed.
    fn page(content: &[u8], plain: usize) -> (Vec<u8>, Range<usize>) {
        let (plain, packed) = content.split_at(plain);
        let packed = snap::raw::Encoder::new().compress_vec(packed).unwrap();
        let bytes = [OUTSIDE, plain, &packed, OUTSIDE].concat();
        let end = bytes.len() - OUTSIDE.len();
        (bytes, OUTSIDE.len()..end)
    }

    /// The whole content.
    fn joined(content: &SnappyContent<'_>) -> Vec<u8> {
        let parts = content.parts.iter();
        parts
            .flat_map(|part| content.slice(part.offset, part.end - part.start))
            .copied()
            .collect()
    }

    /// `first` bytes of noise, then noise with occasional repetitions.
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
        /// At most 2,000 bytes are repeated, which is less than an eighth.
        #[test]
        fn parts_are_the_content(content in with_copies(20_000), plain in 0_usize..50) {
            let (bytes, page) = page(&content, plain);
            let parts = SnappyContent::new(&bytes, page, plain, content.len()).unwrap();
            prop_assert_eq!(joined(&parts), content);
        }

        /// The same result as the library, or none.
        #[test]
        fn damaged_pages_are_as_the_library_has_them(
            content in with_copies(0),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let (mut bytes, page) = page(&content, 0);
            for (offset, byte) in damage {
                bytes[OUTSIDE.len() + offset.index(page.len())] = byte;
            }
            if let Some(parts) = SnappyContent::new(&bytes, page.clone(), 0, content.len()) {
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
            let new = || SnappyContent::new(&bytes, page.clone(), 0, content.len());
            // Short rows have prefixes that repeat; long rows are split by the ends of runs.
            let Some(parts) = new() else {
                prop_assert!(size < 2 * MIN_AVERAGE_PART);
                return Ok(());
            };
            let is_cut = |row: &usize| {
                let pos = start + row * (4 + size) + 4;
                !(parts.parts.iter()).any(|part| part.start <= pos && pos + size <= part.end)
            };
            let copied = parts.extra.len() + (0..count).filter(is_cut).count() * size;
            let fits = copied <= parts.max_extra;
            let found = parts.rows(start, count, prefix);
            prop_assert_eq!(found.is_some(), fits);
            let Some((offsets, extra)) = found else {
                return Ok(());
            };
            prop_assert_eq!(offsets.len(), count);
            let all = [&bytes[..], &extra].concat();
            for (offset, row) in offsets.iter().zip(&rows) {
                prop_assert_eq!(&all[*offset as usize..][..size], &row[..]);
            }
            prop_assert!(new().unwrap().rows(start, count + 1, prefix).is_none(), "one more");
            if count > 0 {
                prop_assert!(new().unwrap().rows(start, count, [1, 2, 3, 9]).is_none(), "prefix");
            }
        }
    }

    #[test]
    fn a_page_may_be_plain_as_a_whole() {
        let parts = |plain, length| SnappyContent::new(OUTSIDE, 2..12, plain, length);
        assert_eq!(joined(&parts(10, 10).unwrap()), OUTSIDE[2..12]);
        assert!(parts(10, 11).is_none() && parts(11, 11).is_none());
        assert!(SnappyContent::new(OUTSIDE, 2..OUTSIDE.len() + 1, 4, 10).is_none());
    }

    #[test]
    fn what_repeats_itself_is_written_out() {
        let mut content = b"abababababab".to_vec();
        content.extend([7; 30]);
        content.extend((0..=u8::MAX).chain((0..=u8::MAX).rev()));
        let (bytes, page) = page(&content, 0);
        let parts = SnappyContent::new(&bytes, page, 0, content.len()).unwrap();
        assert!(!parts.extra.is_empty());
        assert_eq!(joined(&parts), content);
    }

    #[test]
    fn a_page_that_is_much_smaller_is_refused() {
        let content: Vec<u8> = (0..20_000_u32)
            .flat_map(|pos| (pos / 3).to_le_bytes())
            .collect();
        let (bytes, page) = page(&content, 0);
        assert!(SnappyContent::new(&bytes, page, 0, content.len()).is_none());
    }
}

//! Byte strings and strings.

use arrow_buffer::Buffer;
use simdutf8::basic::from_utf8;

use super::{delta, table, validity::Validity};
use crate::{
    buffers::BufferPool,
    column::{Span, VariableWidth},
    decode::{
        claims::check_memory,
        column_chunk::{ColumnChunk, Page},
        fixed_width_fast_path::each_index,
        level_pairs::each_pair,
        levels::split_levels,
        page_path::{DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY, Leaf, PLAIN, PREFIX},
    },
    error::Result,
};

/// Decodes byte strings.
///
/// # Errors
/// If there is no memory for the rows.
pub(super) fn decode(
    leaf: Leaf,
    is_text: bool,
    chunk: &ColumnChunk,
    buffers: &BufferPool,
) -> Result<Option<VariableWidth>> {
    let mut strings = Strings {
        chunk,
        is_text,
        dictionary: Vec::new(),
        joined: Vec::new(),
        end: chunk.bytes.len(),
    };
    if let Some(page) = &chunk.dictionary {
        strings.dictionary = table(page.values.min(chunk.page(page).len() / PREFIX))?;
        let mut entries = std::mem::take(&mut strings.dictionary);
        if strings
            .plain(page.start, page.end, page.values, &mut entries)
            .is_none()
        {
            return Ok(None);
        }
        strings.dictionary = entries;
    }
    let mut rows = Rows {
        spans: table(leaf.rows)?,
        validity: Validity::default(),
        page: Vec::new(),
        max: leaf.rows,
    };
    for page in &chunk.data {
        // Lengths of a value, in two tables.
        check_memory(page.values as u64 * 16)?;
        if rows.add_page(&mut strings, page, leaf.definition).is_none() {
            return Ok(None);
        }
    }
    if rows.spans.len() != leaf.rows {
        return Ok(None);
    }
    let mut second = buffers.take(strings.end - chunk.bytes.len())?;
    let mut target = 0;
    for joined in &strings.joined {
        let Some(end) = joined.write(chunk, is_text, &mut second, target) else {
            return Ok(None);
        };
        target = end;
    }
    let buffers = [
        Buffer::from(chunk.bytes.clone()),
        Buffer::from(buffers.share(second)),
    ];
    let (spans, nulls) = (rows.spans.into(), rows.validity.finish());
    Ok(Some(VariableWidth::new(buffers, spans, nulls)))
}

/// The rows of the pages so far.
struct Rows {
    spans: Vec<Span>,
    validity: Validity,
    /// The values of a page that has nulls.
    page: Vec<Span>,
    max: usize,
}

impl Rows {
    /// `None` if something does not fit together, or if there are too many rows.
    fn add_page(&mut self, strings: &mut Strings<'_>, page: &Page, definition: i16) -> Option<()> {
        if page.values > self.max - self.spans.len() {
            return None;
        }
        let content = strings.chunk.page(page);
        let levels = split_levels(page.levels, content, false, definition > 0)?;
        let start = page.start + levels.length;
        let each = |emit: &mut dyn FnMut(bool, usize) -> Option<()>| {
            let levels = (definition > 0).then_some((levels.definition, 1));
            each_pair(None, levels, page.values, |_, level, count| {
                emit(i16::try_from(level).ok()? == definition, count)
            })
        };
        let mut defined = 0;
        each(&mut |is_valid, count| {
            defined += if is_valid { count } else { 0 };
            self.validity.append(count, is_valid);
            Some(())
        })?;
        if defined == page.values {
            return strings.add(page, start, defined, &mut self.spans);
        }
        self.page.clear();
        strings.add(page, start, defined, &mut self.page)?;
        let mut values = self.page.iter();
        each(&mut |is_valid, count| {
            match is_valid {
                true => self.spans.extend(values.by_ref().take(count)),
                false => self
                    .spans
                    .extend(std::iter::repeat_n(Span::default(), count)),
            }
            Some(())
        })
    }
}

/// The byte strings of a chunk.
struct Strings<'a> {
    chunk: &'a ColumnChunk,
    is_text: bool,
    dictionary: Vec<Span>,
    joined: Vec<Joined>,
    /// The end of the second buffer, which follows the chunk.
    end: usize,
}

impl Strings<'_> {
    /// Adds `count` byte strings, which begin at `start` in the chunk.
    fn add(
        &mut self,
        page: &Page,
        start: usize,
        count: usize,
        spans: &mut Vec<Span>,
    ) -> Option<()> {
        if count == 0 {
            return Some(());
        }
        let before = spans.len();
        match page.encoding {
            PLAIN => self.plain(start, page.end, count, spans)?,
            DELTA_LENGTH_BYTE_ARRAY => self.delta_length(start, page.end, count, spans)?,
            DELTA_BYTE_ARRAY => self.delta(start, page.end, count, spans)?,
            _ => each_index(&self.chunk.bytes[start..page.end], count, |index| {
                let entry = self.dictionary.get(index as usize);
                spans.extend(entry);
                entry.is_some()
            })?,
        }
        (spans.len() - before == count).then_some(())
    }

    /// Byte strings with a length before each.
    fn plain(&self, start: usize, end: usize, count: usize, spans: &mut Vec<Span>) -> Option<()> {
        let bytes = &self.chunk.bytes[..end];
        u32::try_from(end).ok()?;
        // Lengths below 128 are ASCII as well.
        let check = self.is_text && !bytes[start..].is_ascii();
        let mut place = start;
        for _ in 0..count {
            let length = u32::from_le_bytes(*bytes.get(place..)?.first_chunk::<PREFIX>()?);
            let from = place + PREFIX;
            let value = bytes.get(from..from.checked_add(length as usize)?)?;
            if check {
                from_utf8(value).ok()?;
            }
            spans.push(Span {
                start: from as u32,
                length,
            });
            place = from + value.len();
        }
        Some(())
    }

    /// All lengths, then all bytes.
    fn delta_length(
        &self,
        start: usize,
        end: usize,
        count: usize,
        spans: &mut Vec<Span>,
    ) -> Option<()> {
        u32::try_from(end).ok()?;
        let before = spans.len();
        let bytes = &self.chunk.bytes[start..end];
        let length = delta::each(bytes, count, |length| {
            spans.push(Span {
                start: 0,
                length: as_length(length)?,
            });
            Some(())
        })?;
        let mut place = start + length;
        let check = self.is_text && !bytes[length..].is_ascii();
        for span in &mut spans[before..] {
            span.start = place as u32;
            let value = self.chunk.bytes.get(place..place + span.length as usize)?;
            place += value.len();
            if place > end {
                return None;
            }
            if check {
                from_utf8(value).ok()?;
            }
        }
        Some(())
    }

    /// Front-coded byte strings: how many bytes each shares with the one before, the lengths of the rest, then all rests.
    fn delta(
        &mut self,
        start: usize,
        end: usize,
        count: usize,
        spans: &mut Vec<Span>,
    ) -> Option<()> {
        let mut prefixes = Vec::with_capacity(count);
        let mut suffixes = Vec::with_capacity(count);
        let bytes = &self.chunk.bytes[start..end];
        let lengths = delta::each(bytes, count, |length| {
            prefixes.push(as_length(length)?);
            Some(())
        })?;
        let bytes = &bytes[lengths..];
        let more = delta::each(bytes, count, |length| {
            suffixes.push(as_length(length)?);
            Some(())
        })?;
        let mut before = 0;
        for (prefix, suffix) in prefixes.iter().zip(&suffixes) {
            if *prefix > before {
                return None;
            }
            before = prefix.checked_add(*suffix)?;
            spans.push(Span {
                start: u32::try_from(self.end).ok()?,
                length: before,
            });
            self.end = self.end.checked_add(before as usize)?;
        }
        u32::try_from(self.end).ok()?;
        self.joined.push(Joined {
            prefixes,
            suffixes,
            start: start + lengths + more,
            end,
        });
        Some(())
    }
}

fn as_length(length: i64) -> Option<u32> {
    // The lower half of a 32-bit number.
    u32::try_from(length as i32).ok()
}

/// The lengths of a front-coded page, and where its rests are in the chunk.
struct Joined {
    prefixes: Vec<u32>,
    suffixes: Vec<u32>,
    start: usize,
    end: usize,
}

impl Joined {
    /// Writes the byte strings from `target` on, which has memory for them. Returns their end. `None` if bytes are missing, or if
    /// text is none.
    fn write(
        &self,
        chunk: &ColumnChunk,
        is_text: bool,
        second: &mut [u8],
        mut target: usize,
    ) -> Option<usize> {
        let (mut place, mut before) = (self.start, target);
        for (prefix, suffix) in self.prefixes.iter().zip(&self.suffixes) {
            let (prefix, suffix) = (*prefix as usize, *suffix as usize);
            let rest = chunk.bytes[..self.end].get(place..place + suffix)?;
            second.copy_within(before..before + prefix, target);
            second[target + prefix..target + prefix + suffix].copy_from_slice(rest);
            if is_text {
                from_utf8(&second[target..target + prefix + suffix]).ok()?;
            }
            (place, before) = (place + suffix, target);
            target += prefix + suffix;
        }
        Some(target)
    }
}

//! Fast path for tensors: lists or byte strings of one length, without nulls.
//!
//! Arrow's reader creates offsets and levels for each value of a list. If all rows have one length, a few runs of
//! levels show that. The values of a plain page are then already in the format of a batch, so the page itself is the
//! column. Dictionary pages are expanded. All other data is left to Arrow's reader, so this path may return `None` at
//! any time.

use super::{
    column_chunk::ColumnChunk,
    hybrid::{Run, Runs, unpack},
    levels::{UniformLength, all_defined, split_levels},
    row_blocks::RowBlocks,
};
use crate::{buffers::BufferPool, column::FixedWidth, error::Result};

/// The kind of values of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Lists of numbers of `number` bytes.
    Lists { number: usize },
    /// Byte strings.
    Bytes,
}

/// A leaf column whose rows may be tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) values: Values,
    pub(super) definition: i16,
    pub(super) rows: usize,
}

/// Numbers of encodings in parquet.thrift.
pub(super) const PLAIN: i32 = 0;
const PLAIN_DICTIONARY: i32 = 2;
const RLE_DICTIONARY: i32 = 8;

/// Decodes the column, if its rows have one size and no nulls.
///
/// # Errors
/// If there is no memory to expand a dictionary.
pub(super) fn decode(
    leaf: Leaf,
    chunk: &ColumnChunk,
    buffers: &BufferPool,
) -> Result<Option<FixedWidth>> {
    let Some(layout) = Layout::from_chunk(leaf, chunk) else {
        return Ok(None);
    };
    let mut rows = RowBlocks::new(layout.size);
    for (page, start) in chunk.data.iter().zip(&layout.starts) {
        let values = &chunk.bytes[*start..page.end];
        let complete = match page.encoding {
            PLAIN => match leaf.values {
                Values::Lists { number } => {
                    let length = page.values.checked_mul(number);
                    (length.filter(|length| *length <= values.len()))
                        .map(|length| rows.add(&chunk.bytes, *start, length))
                }
                Values::Bytes => layout
                    .plain_bytes(values, page.values)
                    .map(|()| rows.add_steps(&chunk.bytes, *start, page.values, PREFIX)),
            },
            _ => {
                let dictionary = layout.dictionary.unwrap_or_default();
                let length = page.values.checked_mul(layout.entry);
                // Entries without bytes, and values without an entry, are left to Arrow's reader.
                let has_entry = (1..=dictionary.len()).contains(&layout.entry);
                let Some(length) = length.filter(|_| has_entry) else {
                    return Ok(None);
                };
                let mut target = buffers.take(length)?;
                write_out(
                    values,
                    page.values,
                    dictionary,
                    layout.entry,
                    layout.skip,
                    &mut target,
                )
                .map(|()| {
                    let length = target.len();
                    rows.add(&buffers.share(target), 0, length);
                })
            }
        };
        if complete.is_none() {
            return Ok(None);
        }
    }
    Ok(rows.finish(leaf.rows))
}

/// What the levels and the dictionary of a chunk reveal.
struct Layout<'a> {
    /// Bytes of a row.
    size: usize,
    /// Where the values of each page begin.
    starts: Vec<usize>,
    dictionary: Option<&'a [u8]>,
    /// Bytes of a dictionary entry, and of its prefix.
    entry: usize,
    skip: usize,
}

/// Each byte string is preceded by its length in four bytes.
const PREFIX: usize = 4;

impl<'a> Layout<'a> {
    fn from_chunk(leaf: Leaf, chunk: &'a ColumnChunk) -> Option<Self> {
        let mut lengths = UniformLength::default();
        let mut starts = Vec::with_capacity(chunk.data.len());
        for page in &chunk.data {
            if ![PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY].contains(&page.encoding) {
                return None;
            }
            let is_list = matches!(leaf.values, Values::Lists { .. });
            // An old encoding packs the bits of levels.
            if (is_list && !page.are_runs.0) || (leaf.definition > 0 && !page.are_runs.1) {
                return None;
            }
            let levels = split_levels(page.levels, chunk.page(page), is_list, leaf.definition > 0)?;
            all_defined(levels.definition, leaf.definition, page.values)?;
            if is_list {
                lengths.add(levels.repetition, page.values)?;
            }
            starts.push(page.start + levels.length);
        }
        let dictionary = chunk.dictionary.as_ref().map(|page| chunk.page(page));
        Some(match leaf.values {
            Values::Lists { number } => Self {
                size: lengths.finish(leaf.rows)? * number,
                starts,
                dictionary,
                entry: number,
                skip: 0,
            },
            Values::Bytes => {
                let first = Self::first_bytes(chunk, dictionary, &starts)?;
                let size = u32::from_le_bytes(*first) as usize;
                let layout = Self {
                    size,
                    starts,
                    dictionary,
                    entry: size,
                    skip: PREFIX,
                };
                if let Some(page) = &chunk.dictionary {
                    layout.plain_bytes(chunk.page(page), page.values)?;
                }
                layout
            }
        })
    }

    /// The length of the first byte string: of the dictionary, if there is one.
    fn first_bytes(
        chunk: &'a ColumnChunk,
        dictionary: Option<&'a [u8]>,
        starts: &[usize],
    ) -> Option<&'a [u8; PREFIX]> {
        dictionary
            .or_else(|| Some(&chunk.bytes[*starts.first()?..chunk.data.first()?.end]))?
            .first_chunk()
    }

    /// Fails unless `values` holds `count` plain byte strings of the common size.
    fn plain_bytes(&self, values: &[u8], count: usize) -> Option<()> {
        let step = self.size + PREFIX;
        let values = values.get(..count.checked_mul(step)?)?;
        let length = (self.size as u32).to_le_bytes();
        values
            .chunks_exact(step)
            .all(|value| value.starts_with(&length))
            .then_some(())
    }
}

/// Expands the dictionary entries that the indices of a page select. `None` if an index is invalid.
fn write_out(
    indices: &[u8],
    count: usize,
    dictionary: &[u8],
    entry: usize,
    skip: usize,
    target: &mut [u8],
) -> Option<()> {
    match entry {
        4 if skip == 0 => write_entries::<4>(indices, count, dictionary, target),
        8 if skip == 0 => write_entries::<8>(indices, count, dictionary, target),
        _ => {
            let step = entry + skip;
            let mut targets = target.chunks_exact_mut(entry.max(1));
            each_index(indices, count, |index| {
                let start = index as usize * step + skip;
                match (targets.next(), dictionary.get(start..start + entry)) {
                    (Some(target), Some(value)) => {
                        target.copy_from_slice(value);
                        true
                    }
                    _ => false,
                }
            })
        }
    }
}

/// With a constant size, an entry is one move.
fn write_entries<const SIZE: usize>(
    indices: &[u8],
    count: usize,
    dictionary: &[u8],
    target: &mut [u8],
) -> Option<()> {
    let (entries, _) = dictionary.as_chunks::<SIZE>();
    let (targets, _) = target.as_chunks_mut::<SIZE>();
    let mut targets = targets.iter_mut();
    each_index(indices, count, |index| {
        match (targets.next(), entries.get(index as usize)) {
            (Some(target), Some(value)) => {
                *target = *value;
                true
            }
            _ => false,
        }
    })
}

/// Passes each index to `emit`, which returns whether it is valid. `None` if an index is invalid or if bytes are
/// missing. After an invalid index, it reads no further than the end of a run of packed indices.
#[inline]
fn each_index(indices: &[u8], count: usize, mut emit: impl FnMut(u32) -> bool) -> Option<()> {
    let (width, indices) = indices.split_first()?;
    let width = u32::from(*width);
    if width > 32 {
        return None;
    }
    let mut runs = Runs::new(indices, width, count);
    let mut sound = true;
    while let Some(run) = runs.next()? {
        match run {
            Run::Same { value, count } => sound = (0..count).all(|_| emit(value)),
            // Without bits, the run has no bytes that would bound it.
            Run::Packed { count, .. } if width == 0 => sound = (0..count).all(|_| emit(0)),
            Run::Packed { bytes, count } => {
                unpack(bytes, width, count, |value| sound &= emit(value))
            }
        }
        if !sound {
            return None;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::column_chunk::Page;

    /// Decodes two byte strings of two bytes, with a run of definition levels if they are optional.
    fn is_decoded(definition: i16, are_runs: (bool, bool)) -> bool {
        let levels: &[u8] = match definition {
            0 => &[],
            _ => &[2, 0, 0, 0, 0x04, 0x01],
        };
        let bytes = [levels, b"\x02\0\0\0ab\x02\0\0\0cd"].concat();
        let leaf = Leaf {
            values: Values::Bytes,
            definition,
            rows: 2,
        };
        let page = Page {
            start: 0,
            end: bytes.len(),
            values: 2,
            encoding: PLAIN,
            levels: None,
            are_runs,
        };
        let chunk = ColumnChunk {
            bytes: bytes.into(),
            dictionary: None,
            data: vec![page],
        };
        let decoded = decode(leaf, &chunk, &BufferPool::default());
        decoded.unwrap().is_some()
    }

    #[test]
    fn levels_that_are_no_runs_are_left_to_arrow() {
        assert!(is_decoded(1, (true, true)));
        assert!(is_decoded(1, (false, true)), "it has no repetition levels");
        assert!(!is_decoded(1, (true, false)));
        assert!(is_decoded(0, (false, false)), "it has no levels");
    }

    #[test]
    fn indices_end_at_the_first_bad_one() {
        let seen = |indices: &[u8], count| {
            let mut seen = 0_usize;
            let read = each_index(indices, count, |index| {
                seen += 1;
                index == 0 && seen < 9
            });
            (read, seen)
        };
        // A run of 2^31 - 1 equal indices, and as many groups of eight indices of no bits.
        let run = [0x01, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x00];
        assert_eq!(seen(&run, i32::MAX as usize), (None, 9));
        let packed = [0x00, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(seen(&packed, i32::MAX as usize), (None, 9));
        assert_eq!(seen(&packed, 8), (Some(()), 8));
        // Eight indices of one bit, the last of them 1, then eight more.
        let bits = [0x01, 0x03, 0x80, 0x03, 0x00];
        assert_eq!(seen(&bits, 16), (None, 8));
    }
}

//! Fast path for tensors: lists or byte strings of one length, without nulls.
//!
//! Arrow's reader creates offsets and levels for each value of a list. If all rows have one length, a few runs of
//! levels show that. The values of a plain page are then already in the format of a batch, so the page itself is the
//! column. Dictionary pages are expanded. All other data is left to the path for rows of variable width, so this one may
//! return `None` at any time.

use super::{
    column_chunk::ColumnChunk,
    hybrid::{Run, Runs, unpack},
    page_path::{Leaf, PLAIN, PREFIX, Values},
    row_blocks::RowBlocks,
    uniform_rows::UniformRows,
};
use crate::{buffers::BufferPool, column::FixedWidth, error::Result};

/// Decodes the column, if its rows have one size and no nulls. `rows` has taken all pages of the chunk.
///
/// # Errors
/// If there is no memory to expand a dictionary.
pub(super) fn decode(
    leaf: Leaf,
    chunk: &ColumnChunk,
    rows: UniformRows,
    buffers: &BufferPool,
) -> Result<Option<FixedWidth>> {
    let Some((size, starts)) = rows.finish() else {
        return Ok(None);
    };
    let (entry, skip) = match leaf.values {
        Values::Lists { number, .. } => (number, 0),
        Values::Bytes { .. } => (size, PREFIX),
    };
    let dictionary = (chunk.dictionary.as_ref()).map_or(&[][..], |page| chunk.page(page));
    let mut rows = RowBlocks::new(size);
    for (page, start) in chunk.data.iter().zip(starts) {
        let values = &chunk.bytes[start..page.end];
        let complete = match page.encoding {
            PLAIN => match leaf.values {
                Values::Lists { number, .. } => {
                    let length = page.values.checked_mul(number);
                    (length.filter(|length| *length <= values.len()))
                        .map(|length| rows.add(&chunk.bytes, start, length))
                }
                Values::Bytes { .. } => {
                    rows.add_steps(&chunk.bytes, start, page.values, PREFIX);
                    Some(())
                }
            },
            _ => {
                let length = page.values.checked_mul(entry);
                // Entries without bytes, and values without an entry, are left to Arrow's reader.
                let has_entry = (1..=dictionary.len()).contains(&entry);
                let Some(length) = length.filter(|_| has_entry) else {
                    return Ok(None);
                };
                let mut target = buffers.take(length)?;
                write_out(values, page.values, dictionary, entry, skip, &mut target).map(|()| {
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

/// Expands the dictionary entries that the indices of a page select. `None` if an index is invalid.
pub(super) fn write_out(
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
pub(super) fn each_index(
    indices: &[u8],
    count: usize,
    mut emit: impl FnMut(u32) -> bool,
) -> Option<()> {
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

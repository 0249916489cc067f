//! Lists of numbers.

use arrow_buffer::{Buffer, MutableBuffer, NullBuffer};
use arrow_schema::DataType;

use super::{
    list_rows::{Elements, ListRows},
    numbers,
};
use crate::{
    buffers::BufferPool,
    column::{ColumnData, Span, VariableWidth, list_array},
    decode::{
        claims::check_memory, column_chunk::ColumnChunk, levels::split_levels, page_path::PLAIN,
    },
    error::Result,
};

/// The elements of a data page.
struct Part<'a> {
    encoding: i32,
    /// Where the values begin in the chunk, and all bytes of the page from there on.
    start: usize,
    values: &'a [u8],
    elements: Elements,
    /// The number of elements before it in the chunk.
    first: usize,
    /// Where its elements begin: in the chunk, or behind it in the second buffer.
    place: usize,
}

/// Decodes lists of numbers of `number` bytes.
///
/// # Errors
/// If there is no memory for the rows.
pub(super) fn decode(
    mut rows: ListRows,
    number: usize,
    data_type: &DataType,
    chunk: &ColumnChunk,
    page_rows: Option<&[usize]>,
    buffers: &BufferPool,
) -> Result<Option<ColumnData>> {
    let Some(mut parts) = parts(chunk, page_rows, &mut rows) else {
        return Ok(None);
    };
    let Some((mut rows, nulls, elements)) = rows.finish() else {
        return Ok(None);
    };
    let dictionary = (chunk.dictionary.as_ref()).map_or(&[][..], |page| chunk.page(page));
    if let Some(elements) = elements {
        let values = spread(&parts, number, dictionary, &elements)?;
        let mut end = 0;
        let ends: Vec<usize> = (rows.iter())
            .map(|row| {
                end += row.length as usize * number;
                end
            })
            .collect();
        let is_large = matches!(data_type, DataType::List(_)) && i32::try_from(end).is_err();
        let values = values.filter(|_| !is_large);
        return Ok(values.map(|values| {
            let array = list_array(data_type, &ends, values, nulls, Some(elements));
            ColumnData::Arrow(array)
        }));
    }
    let in_place = parts.iter().any(|part| part.encoding == PLAIN);
    let first_buffer = match in_place {
        true => Buffer::from(chunk.bytes.clone()),
        false => Buffer::from(&[][..]),
    };
    let Some((shared, end)) = place(&mut parts, &mut rows, number, first_buffer.len()) else {
        return Ok(None);
    };
    let mut second = buffers.take(end - first_buffer.len())?;
    let written = write(
        &parts,
        &shared,
        number,
        dictionary,
        &first_buffer,
        &mut second,
    );
    Ok(written.map(|()| {
        let second = Buffer::from(buffers.share(second));
        ColumnData::VariableWidth(VariableWidth::new(
            [first_buffer, second],
            rows.into(),
            nulls,
        ))
    }))
}

/// Reads the levels of all pages.
fn parts<'a>(
    chunk: &'a ColumnChunk,
    page_rows: Option<&[usize]>,
    rows: &mut ListRows,
) -> Option<Vec<Part<'a>>> {
    let mut first = 0;
    let parts = chunk.data.iter().enumerate().map(|(number, page)| {
        let levels = split_levels(page.levels, chunk.page(page), true, true)?;
        let before = rows.count();
        let elements = rows.add_page(&levels, page.values)?;
        // The first row of a page that begins within one is missing in this number.
        if page_rows.is_some_and(|known| known.get(number) != Some(&(rows.count() - before))) {
            return None;
        }
        let part = Part {
            encoding: page.encoding,
            start: page.start + levels.length,
            values: &chunk.page(page)[levels.length..],
            elements,
            first,
            place: 0,
        };
        first += elements.all;
        Some(part)
    });
    parts.collect()
}

/// A row that several pages share: its elements, and its place in the second buffer.
struct SharedRow {
    first: usize,
    count: usize,
    place: usize,
}

/// Gives each part and each row its place. Bytes of the second buffer begin at `split`. Returns the rows that pages share, and the
/// end of the second buffer. `None` if a page has too few values, or if the places are too many.
fn place(
    parts: &mut [Part<'_>],
    rows: &mut [Span],
    number: usize,
    split: usize,
) -> Option<(Vec<SharedRow>, usize)> {
    let mut end = split;
    for part in parts.iter_mut() {
        let length = part.elements.all.checked_mul(number)?;
        if part.encoding == PLAIN {
            part.values.get(..length)?;
            part.place = part.start;
        } else {
            part.place = end;
            end = end.checked_add(length)?;
        }
    }
    let mut shared = Vec::new();
    let (mut first, mut current) = (0, 0);
    for row in rows {
        let count = row.length as usize;
        if count == 0 {
            continue;
        }
        while parts.get(current)?.first + parts[current].elements.all <= first {
            current += 1;
        }
        let part = &parts[current];
        let place = if first + count <= part.first + part.elements.all {
            part.place + (first - part.first) * number
        } else {
            let place = end;
            end = end.checked_add(count.checked_mul(number)?)?;
            shared.push(SharedRow {
                first,
                count,
                place,
            });
            place
        };
        row.start = u32::try_from(place).ok()?;
        row.length = u32::try_from(count.checked_mul(number)?).ok()?;
        first += count;
    }
    u32::try_from(end).ok()?;
    Some((shared, end))
}

/// Writes the second buffer: the pages that are not plain, then the rows that pages share.
fn write(
    parts: &[Part<'_>],
    shared: &[SharedRow],
    number: usize,
    dictionary: &[u8],
    first_buffer: &[u8],
    second: &mut [u8],
) -> Option<()> {
    let split = first_buffer.len();
    for part in parts.iter().filter(|part| part.encoding != PLAIN) {
        let place = part.place - split;
        let target = &mut second[place..place + part.elements.all * number];
        let Part {
            encoding, values, ..
        } = part;
        numbers::write(
            *encoding,
            values,
            part.elements.all,
            number,
            dictionary,
            target,
        )?;
    }
    for row in shared {
        let (mut first, end) = (row.first, row.first + row.count);
        let mut target = row.place - split;
        let after = parts.partition_point(|part| part.first + part.elements.all <= first);
        for part in &parts[after..] {
            if first == end {
                break;
            }
            let count = (part.first + part.elements.all).min(end) - first;
            let from = part.place + (first - part.first) * number;
            let length = count * number;
            match from.checked_sub(split) {
                Some(from) => second.copy_within(from..from + length, target),
                None => second[target..target + length]
                    .copy_from_slice(&first_buffer[from..from + length]),
            }
            (first, target) = (first + count, target + length);
        }
    }
    Some(())
}

/// The values of all elements in order, with 0 for null elements.
fn spread(
    parts: &[Part<'_>],
    number: usize,
    dictionary: &[u8],
    elements: &NullBuffer,
) -> Result<Option<Buffer>> {
    let Some(length) = elements.len().checked_mul(number) else {
        return Ok(None);
    };
    check_memory(length as u64)?;
    let mut values = MutableBuffer::from_len_zeroed(length);
    for part in parts {
        let Elements { all, defined } = part.elements;
        let target = &mut values[part.first * number..(part.first + all) * number];
        let (dense, _) = target.split_at_mut(defined * number);
        if numbers::write(
            part.encoding,
            part.values,
            defined,
            number,
            dictionary,
            dense,
        )
        .is_none()
        {
            return Ok(None);
        }
        numbers::spread(target, number, defined, |element| {
            elements.is_valid(part.first + element)
        });
    }
    Ok(Some(values.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(encoding: i32, first: usize, all: usize, values: &[u8]) -> Part<'_> {
        Part {
            encoding,
            start: 10 * first,
            values,
            elements: Elements { all, defined: all },
            first,
            place: 0,
        }
    }

    fn rows(lengths: &[u32]) -> Vec<Span> {
        let row = |length: &u32| Span {
            start: 0,
            length: *length,
        };
        lengths.iter().map(row).collect()
    }

    #[test]
    fn rows_that_pages_share_are_copied_and_all_others_stay() {
        const STREAMS: i32 = crate::decode::page_path::BYTE_STREAM_SPLIT;
        let chunk: Vec<u8> = (0..100).collect();
        // Numbers of one byte: 0 1 2 | 30 31 | | 107 108 109, of which the third page has none.
        let mut parts = [
            part(PLAIN, 0, 3, &chunk[..3]),
            part(PLAIN, 3, 2, &chunk[30..33]),
            part(PLAIN, 5, 0, &[]),
            part(STREAMS, 5, 3, &[107, 108, 109]),
        ];
        let mut rows = rows(&[2, 0, 2, 3, 1]);
        let (shared, end) = place(&mut parts, &mut rows, 1, 100).unwrap();
        assert_eq!((shared.len(), end), (2, 100 + 3 + 2 + 3));
        let mut second = vec![0; end - 100];
        write(&parts, &shared, 1, &[], &chunk, &mut second).unwrap();
        let buffers = [Buffer::from(chunk.clone()), Buffer::from(second)];
        let column = VariableWidth::new(buffers, rows.into(), None);
        let row = |row| column.row(row).to_vec();
        let rows: Vec<Vec<u8>> = (0..5).map(row).collect();
        let expected: [&[u8]; 5] = [&[0, 1], &[], &[2, 30], &[31, 107, 108], &[109]];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_page_with_too_few_values_is_refused() {
        let mut parts = [part(PLAIN, 0, 3, &[1, 2])];
        assert!(place(&mut parts, &mut rows(&[3]), 1, 100).is_none());
        let mut parts = [part(PLAIN, 0, usize::MAX / 2, &[1, 2])];
        assert!(place(&mut parts, &mut rows(&[3]), 8, 100).is_none());
    }
}

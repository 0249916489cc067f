//! Rows of variable length: byte strings, strings, and lists of numbers without null elements.
//!
//! The rows lie anywhere in two buffers: the first one are the pages of a column chunk as they were decompressed, the second
//! one has what had to be expanded. So decoding copies no row that a page holds as a whole.

use arrow_array::{Array as _, ArrayRef, make_array};
use arrow_buffer::{Buffer, MutableBuffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::assemble;

/// The place of a row. Bytes of the second buffer follow those of the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) length: u32,
}

/// A variable-width column.
#[derive(Debug)]
pub(crate) struct VariableWidth {
    buffers: [Buffer; 2],
    /// Missing rows have no bytes.
    spans: Box<[Span]>,
    nulls: Option<NullBuffer>,
    /// Bytes of each row, if all have the same and none is missing.
    size: Option<usize>,
}

impl VariableWidth {
    /// # Panics
    /// If a row lies outside of the buffers, or if there is not one bit for each row.
    pub(crate) fn new(buffers: [Buffer; 2], spans: Box<[Span]>, nulls: Option<NullBuffer>) -> Self {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        assert!(
            nulls
                .as_ref()
                .is_none_or(|nulls| nulls.len() == spans.len()),
            "one bit a row"
        );
        let split = buffers[0].len() as u64;
        let ends = [split, split + buffers[1].len() as u64];
        let is_inside = |span: &Span| {
            let end = ends[usize::from(u64::from(span.start) >= split)];
            u64::from(span.start) + u64::from(span.length) <= end || span.length == 0
        };
        assert!(spans.iter().all(is_inside), "a row outside of its buffer");
        let first = spans.first().map(|first| first.length);
        let size = (first.filter(|_| nulls.is_none()))
            .filter(|first| spans.iter().all(|span| span.length == *first));
        Self {
            buffers,
            spans,
            nulls,
            size: size.map(|size| size as usize),
        }
    }

    /// Converts an Arrow array of byte strings, strings, or lists of numbers without null elements.
    pub(crate) fn from_data(data: &ArrayData) -> Option<Self> {
        let (values, unit, first) = match data.data_type() {
            DataType::Binary | DataType::Utf8 | DataType::LargeBinary | DataType::LargeUtf8 => {
                (&data.buffers()[1], 1, 0)
            }
            DataType::List(_) | DataType::LargeList(_) => {
                let values = &data.child_data()[0];
                let unit = values.data_type().primitive_width()?;
                if values.null_count() > 0 {
                    return None;
                }
                (&values.buffers()[0], unit, values.offset())
            }
            _ => return None,
        };
        let spans = match data.data_type() {
            DataType::Binary | DataType::Utf8 | DataType::List(_) => {
                spans::<i32>(data, first, unit)
            }
            _ => spans::<i64>(data, first, unit),
        };
        Some(Self::new(
            [values.clone(), Buffer::from(&[][..])],
            spans?,
            data.nulls().cloned(),
        ))
    }

    pub(crate) fn bytes(&self) -> usize {
        let buffers = self.buffers.iter().map(Buffer::capacity).sum::<usize>();
        let nulls = self.nulls.as_ref().map_or(0, |nulls| nulls.len() / 8);
        buffers + size_of_val(&*self.spans) + nulls
    }

    /// Bytes of each row, if all have the same and none is missing.
    pub(crate) fn size(&self) -> Option<usize> {
        self.size
    }

    /// The bytes of a row.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        let Span { start, length } = self.spans[row];
        let (start, length) = (start as usize, length as usize);
        match start.checked_sub(self.buffers[0].len()) {
            None => &self.buffers[0][start..start + length],
            Some(_) if length == 0 => &[],
            Some(start) => &self.buffers[1][start..start + length],
        }
    }

    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    pub(crate) fn has_nulls(&self) -> bool {
        self.nulls.is_some()
    }

    /// The rows of some ranges, which are sorted.
    pub(crate) fn select(self, rows: impl Iterator<Item = std::ops::Range<usize>> + Clone) -> Self {
        let nulls = (self.nulls.as_ref())
            .map(|nulls| rows.clone().flatten().map(|row| nulls.is_valid(row)))
            .map(NullBuffer::from_iter);
        let spans = rows.flat_map(|rows| self.spans[rows].iter().copied());
        Self::new(self.buffers.clone(), spans.collect(), nulls)
    }

    pub(crate) fn to_array(&self, data_type: &DataType) -> ArrayRef {
        let mut end = 0;
        let ends: Vec<usize> = (self.spans.iter())
            .map(|span| {
                end += span.length as usize;
                end
            })
            .collect();
        let mut values = MutableBuffer::with_capacity(end);
        for row in 0..self.spans.len() {
            values.extend_from_slice(self.row(row));
        }
        assemble::varying(data_type, &ends, values.into(), self.nulls.clone())
    }
}

/// The rows of an array with offsets. The values begin with number `first`, and have `unit` bytes each. `None` if they are too
/// many.
fn spans<O: arrow_buffer::ArrowNativeType>(
    data: &ArrayData,
    first: usize,
    unit: usize,
) -> Option<Box<[Span]>> {
    let offsets = &data.buffers()[0].typed_data::<O>()[data.offset()..];
    let offsets = offsets.get(..=data.len())?;
    let last = (first + offsets.last()?.as_usize()).checked_mul(unit)?;
    u32::try_from(last).ok()?;
    let rows = offsets.windows(2).enumerate().map(|(row, pair)| Span {
        start: ((first + pair[0].as_usize()) * unit) as u32,
        length: match data.is_null(row) {
            true => 0,
            false => ((pair[1].as_usize() - pair[0].as_usize()) * unit) as u32,
        },
    });
    Some(rows.collect())
}

/// An Arrow array of lists of numbers. Row r ends at byte `ends[r]` of the values. `elements` tells which values are null.
pub(crate) fn list_array(
    data_type: &DataType,
    ends: &[usize],
    values: Buffer,
    rows: Option<NullBuffer>,
    elements: Option<NullBuffer>,
) -> ArrayRef {
    let array = assemble::varying(data_type, ends, values, rows).to_data();
    let child = array.child_data()[0].clone().into_builder();
    // SAFETY: Any bits are validity bits.
    let child = unsafe { child.nulls(elements).build_unchecked() };
    let array = array.into_builder().child_data(vec![child]);
    // SAFETY: As before, with nulls.
    make_array(unsafe { array.build_unchecked() })
}

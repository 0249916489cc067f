//! A fixed-width column without nulls, in a few blocks.

use arrow_array::ArrayRef;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::assemble;

/// Rows of one size, in blocks.
#[derive(Debug)]
pub(crate) struct FixedWidth {
    /// Bytes of a row.
    size: usize,
    rows: usize,
    /// Sorted by row; together they hold all rows.
    blocks: Vec<Block>,
}

/// Consecutive rows.
#[derive(Debug)]
pub(crate) struct Block {
    /// Index of its first row.
    pub(crate) first: usize,
    pub(crate) data: Buffer,
    pub(crate) offsets: RowOffsets,
}

/// The offsets of the rows of a block in its data: at equal distances of `step`, which is at least the size of a row. A
/// step of 0 repeats one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowOffsets {
    pub(crate) start: usize,
    pub(crate) step: usize,
}

impl Block {
    /// The bytes of a row, by index within the block.
    // Otherwise the compiler emits a call for each row of a batch, which is measurable.
    #[inline(always)]
    fn row(&self, row: usize, size: usize) -> &[u8] {
        let start = self.offsets.start + row * self.offsets.step;
        &self.data[start..start + size]
    }

    /// Whether the block holds this number of rows of this size.
    fn has(&self, rows: usize, size: usize) -> bool {
        let RowOffsets { start, step } = self.offsets;
        rows == 0 || start + (rows - 1) * step + size <= self.data.len()
    }
}

impl FixedWidth {
    /// # Panics
    /// If the blocks are too short for their rows, or do not cover all rows.
    pub(crate) fn new(size: usize, rows: usize, blocks: Vec<Block>) -> Self {
        assert!(
            rows == 0 || blocks.first().is_some_and(|block| block.first == 0),
            "no first block"
        );
        let fixed = Self { size, rows, blocks };
        for (block, rows) in fixed.rows_of_blocks() {
            assert!(block.has(rows, size), "block too short");
        }
        fixed
    }

    /// Converts an Arrow array of fixed-width rows: numbers, fixed-size lists and byte strings, or lists and byte
    /// strings of equal length.
    pub(crate) fn from_data(data: &ArrayData) -> Option<Self> {
        let rows = data.len();
        if rows == 0 || data.null_count() > 0 {
            return None;
        }
        let (values, first, size) = match data.data_type() {
            DataType::List(_) => {
                let (first, length) = uniform_offsets::<i32>(data)?;
                list_values(data, first, length)?
            }
            DataType::LargeList(_) => {
                let (first, length) = uniform_offsets::<i64>(data)?;
                list_values(data, first, length)?
            }
            DataType::FixedSizeList(_, length) => {
                let length = usize::try_from(*length).ok()?;
                list_values(data, data.offset() * length, length)?
            }
            DataType::Binary | DataType::Utf8 => {
                let (first, length) = uniform_offsets::<i32>(data)?;
                (&data.buffers()[1], first, length)
            }
            DataType::LargeBinary | DataType::LargeUtf8 => {
                let (first, length) = uniform_offsets::<i64>(data)?;
                (&data.buffers()[1], first, length)
            }
            DataType::FixedSizeBinary(size) => {
                let size = usize::try_from(*size).ok()?;
                (&data.buffers()[0], data.offset() * size, size)
            }
            number => {
                let size = number.primitive_width()?;
                (&data.buffers()[0], data.offset() * size, size)
            }
        };
        let block = Block {
            first: 0,
            data: values.clone(),
            offsets: RowOffsets {
                start: first,
                step: size,
            },
        };
        Some(Self::new(size, rows, vec![block]))
    }

    /// Bytes of a row.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Approximate bytes in memory. Blocks may share a buffer.
    pub(crate) fn bytes(&self) -> usize {
        let blocks = self.rows_of_blocks();
        blocks.map(|(block, rows)| rows * block.offsets.step).sum()
    }

    /// Each block and its number of rows.
    ///
    /// # Panics
    /// If the blocks are not sorted.
    fn rows_of_blocks(&self) -> impl Iterator<Item = (&Block, usize)> {
        let firsts = self.blocks.iter().skip(1).map(|block| block.first);
        (self.blocks.iter().zip(firsts.chain([self.rows]))).map(|(block, end)| {
            let rows = end.checked_sub(block.first).expect("blocks in order");
            (block, rows)
        })
    }

    /// The bytes of a row.
    // See `Block::row`.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        let block = match &self.blocks[..] {
            [block] => block,
            blocks => {
                let after = blocks.partition_point(|block| block.first <= row);
                &blocks[after - 1]
            }
        };
        block.row(row - block.first, self.size)
    }

    pub(crate) fn to_array(&self, data_type: &DataType) -> ArrayRef {
        let mut values = MutableBuffer::with_capacity(self.rows * self.size);
        for row in 0..self.rows {
            values.extend_from_slice(self.row(row));
        }
        assemble::fixed(data_type, self.rows, self.size, values.into())
    }
}

/// The first offset and the length of each row, if all rows have the same length.
fn uniform_offsets<O: arrow_buffer::ArrowNativeType>(data: &ArrayData) -> Option<(usize, usize)> {
    let offsets: &[O] =
        &data.buffers()[0].typed_data::<O>()[data.offset()..=data.offset() + data.len()];
    let first = offsets[0].as_usize();
    let length = offsets[1].as_usize() - first;
    let uniform_offsets = offsets
        .windows(2)
        .all(|pair| pair[1].as_usize() - pair[0].as_usize() == length);
    uniform_offsets.then_some((first, length))
}

/// Buffer, first byte and bytes a row for lists of `length` numbers, starting with number `first`.
fn list_values(data: &ArrayData, first: usize, length: usize) -> Option<(&Buffer, usize, usize)> {
    let values = &data.child_data()[0];
    let size = values.data_type().primitive_width()?;
    (values.null_count() == 0).then(|| {
        let first = (values.offset() + first) * size;
        (&values.buffers()[0], first, length * size)
    })
}

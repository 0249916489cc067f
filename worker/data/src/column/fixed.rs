//! Rows of one size without nulls, in a few blocks.

use arrow_array::ArrayRef;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::assemble;

/// See the module.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// Bytes of a row.
    size: usize,
    rows: usize,
    /// In the order of their rows, of which they hold all.
    blocks: Vec<Block>,
}

/// Consecutive rows.
#[derive(Debug)]
pub(crate) struct Block {
    /// Number of its first row.
    pub(crate) first: usize,
    pub(crate) data: Buffer,
    pub(crate) places: Places,
}

/// Where the rows of a block begin in its data.
#[derive(Debug)]
pub(crate) enum Places {
    /// At equal distances of `step`: at least the size of a row, or nothing where all rows are the same.
    Even { start: usize, step: usize },
    /// Anywhere. Places count on from the end of the data into `side`.
    Table { places: Box<[u32]>, side: Buffer },
}

impl Block {
    /// The bytes of its row of that number.
    // Else the compiler makes it a call, for each row of a batch, which shows in a profile of reading.
    #[inline(always)]
    fn row(&self, row: usize, size: usize) -> &[u8] {
        match &self.places {
            Places::Even { start, step } => {
                let start = start + row * step;
                &self.data[start..start + size]
            }
            Places::Table { places, side } => {
                let start = places[row] as usize;
                match start.checked_sub(self.data.len()) {
                    Some(start) => &side[start..start + size],
                    None => &self.data[start..start + size],
                }
            }
        }
    }

    /// Whether so many rows of that size are there.
    fn has(&self, rows: usize, size: usize) -> bool {
        match &self.places {
            Places::Even { start, step } => {
                rows == 0 || start + (rows - 1) * step + size <= self.data.len()
            }
            Places::Table { places, side } => {
                let length = self.data.len();
                let is_there = |place: &u32| {
                    let end = *place as usize + size;
                    end <= length || (*place as usize >= length && end <= length + side.len())
                };
                places.len() == rows && places.iter().all(is_there)
            }
        }
    }

    /// Bytes of memory of so many rows, about. Blocks may be parts of one buffer.
    fn bytes(&self, rows: usize, size: usize) -> usize {
        match &self.places {
            Places::Even { step, .. } => rows * step,
            Places::Table { places, side } => {
                rows * size + size_of_val(&**places) + side.capacity()
            }
        }
    }
}

impl Fixed {
    /// # Panics
    /// If the blocks are too short for their rows, or leave rows out.
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

    /// What Arrow holds, if it is of this form: numbers, fixed-size lists and byte strings, and lists and
    /// byte strings that happen to be of one length.
    pub(crate) fn from_data(data: &ArrayData) -> Option<Self> {
        let rows = data.len();
        if rows == 0 || data.null_count() > 0 {
            return None;
        }
        let (values, first, size) = match data.data_type() {
            DataType::List(_) => {
                let (first, length) = even::<i32>(data)?;
                of_list(data, first, length)?
            }
            DataType::LargeList(_) => {
                let (first, length) = even::<i64>(data)?;
                of_list(data, first, length)?
            }
            DataType::FixedSizeList(_, length) => {
                let length = usize::try_from(*length).ok()?;
                of_list(data, data.offset() * length, length)?
            }
            DataType::Binary | DataType::Utf8 => {
                let (first, length) = even::<i32>(data)?;
                (&data.buffers()[1], first, length)
            }
            DataType::LargeBinary | DataType::LargeUtf8 => {
                let (first, length) = even::<i64>(data)?;
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
            places: Places::Even {
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

    pub(crate) fn bytes(&self) -> usize {
        let blocks = self.rows_of_blocks();
        blocks
            .map(|(block, rows)| block.bytes(rows, self.size))
            .sum()
    }

    /// Each block and how many rows it has.
    ///
    /// # Panics
    /// If blocks are not in order.
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

/// The beginning and the length of each row, if offsets are equally far apart.
fn even<O: arrow_buffer::ArrowNativeType>(data: &ArrayData) -> Option<(usize, usize)> {
    let offsets: &[O] =
        &data.buffers()[0].typed_data::<O>()[data.offset()..=data.offset() + data.len()];
    let first = offsets[0].as_usize();
    let length = offsets[1].as_usize() - first;
    let even = offsets
        .windows(2)
        .all(|pair| pair[1].as_usize() - pair[0].as_usize() == length);
    even.then_some((first, length))
}

/// Buffer, first byte and bytes per row of lists of `length` numbers, the first being number `first`.
fn of_list(data: &ArrayData, first: usize, length: usize) -> Option<(&Buffer, usize, usize)> {
    let values = &data.child_data()[0];
    let size = values.data_type().primitive_width()?;
    (values.null_count() == 0).then(|| {
        let first = (values.offset() + first) * size;
        (&values.buffers()[0], first, length * size)
    })
}

//! Byte strings and strings of variable length without nulls: one buffer with offsets.

use arrow_array::ArrayRef;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::assemble;

/// A variable-width column without nulls.
#[derive(Debug)]
pub(crate) struct VariableWidth {
    data: Buffer,
    /// Row r is `data[offsets[r]..offsets[r + 1]]`.
    offsets: Box<[usize]>,
}

impl VariableWidth {
    /// Converts an Arrow array of byte strings or strings without nulls.
    pub(crate) fn from_data(data: &ArrayData) -> Option<Self> {
        if data.null_count() > 0 {
            return None;
        }
        let rows = data.offset()..=data.offset() + data.len();
        let offsets = match data.data_type() {
            DataType::Binary | DataType::Utf8 => data.buffers()[0].typed_data::<i32>()[rows]
                .iter()
                .map(|offset| *offset as usize)
                .collect(),
            DataType::LargeBinary | DataType::LargeUtf8 => data.buffers()[0].typed_data::<i64>()
                [rows]
                .iter()
                .map(|offset| *offset as usize)
                .collect(),
            _ => return None,
        };
        Some(Self {
            data: data.buffers()[1].clone(),
            offsets,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.capacity() + size_of_val(&*self.offsets)
    }

    #[inline]
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        &self.data[self.offsets[row]..self.offsets[row + 1]]
    }

    pub(crate) fn to_array(&self, data_type: &DataType) -> ArrayRef {
        let rows = self.offsets.len() - 1;
        let first = self.offsets[0];
        let ends: Vec<usize> = self.offsets[1..].iter().map(|end| end - first).collect();
        let mut values = MutableBuffer::with_capacity(self.offsets[rows] - first);
        values.extend_from_slice(&self.data[first..self.offsets[rows]]);
        assemble::varying(data_type, &ends, values.into())
    }
}

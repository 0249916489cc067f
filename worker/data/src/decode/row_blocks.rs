//! Collects the values of pages into blocks of whole rows. Writers may split a row between two pages.

use arrow_buffer::Buffer;
use bytes::Bytes;

use crate::column::{Block, FixedWidth, RowOffsets};

/// Blocks of whole rows, from one page after the other.
#[derive(Debug)]
pub(super) struct RowBlocks {
    size: usize,
    rows: usize,
    blocks: Vec<Block>,
    /// The first part of a row that continues in the next page.
    partial_row: Vec<u8>,
}

impl RowBlocks {
    pub(super) fn new(size: usize) -> Self {
        Self {
            size,
            rows: 0,
            blocks: Vec::new(),
            partial_row: Vec::new(),
        }
    }

    /// Adds contiguous values.
    pub(super) fn add(&mut self, bytes: &Bytes, mut start: usize, mut length: usize) {
        if !self.partial_row.is_empty() {
            let taken = length.min(self.size - self.partial_row.len());
            self.partial_row
                .extend_from_slice(&bytes[start..start + taken]);
            (start, length) = (start + taken, length - taken);
            if self.partial_row.len() == self.size {
                let row = std::mem::take(&mut self.partial_row);
                self.push(Buffer::from_vec(row), 0, 1, self.size);
            }
        }
        if let Some(rows) = length.checked_div(self.size) {
            self.push(Buffer::from(bytes.clone()), start, rows, self.size);
            self.partial_row
                .extend_from_slice(&bytes[start + rows * self.size..start + length]);
        }
    }

    /// Adds byte strings that each have a prefix of `prefix` bytes.
    pub(super) fn add_steps(&mut self, bytes: &Bytes, start: usize, rows: usize, prefix: usize) {
        self.push(
            Buffer::from(bytes.clone()),
            start + prefix,
            rows,
            self.size + prefix,
        );
    }

    fn push(&mut self, data: Buffer, start: usize, rows: usize, step: usize) {
        if rows > 0 {
            self.blocks.push(Block {
                first: self.rows,
                data,
                offsets: RowOffsets { start, step },
            });
            self.rows += rows;
        }
    }

    pub(super) fn finish(self, rows: usize) -> Option<FixedWidth> {
        (self.rows == rows && self.partial_row.is_empty())
            .then(|| FixedWidth::new(self.size, rows, self.blocks))
    }
}

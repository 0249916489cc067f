//! Values page by page, as blocks of whole rows. Writers may cut a row at the end of a page.

use arrow_buffer::Buffer;
use bytes::Bytes;

use crate::column::{Block, Fixed, Places};

/// See the module.
#[derive(Debug)]
pub(super) struct RowBlocks {
    size: usize,
    rows: usize,
    blocks: Vec<Block>,
    /// The first part of a row that goes on in the next page.
    begun: Vec<u8>,
}

impl RowBlocks {
    pub(super) fn new(size: usize) -> Self {
        Self {
            size,
            rows: 0,
            blocks: Vec::new(),
            begun: Vec::new(),
        }
    }

    /// Values without anything between them.
    pub(super) fn add(&mut self, bytes: &Bytes, mut start: usize, mut length: usize) {
        if !self.begun.is_empty() {
            let taken = length.min(self.size - self.begun.len());
            self.begun.extend_from_slice(&bytes[start..start + taken]);
            (start, length) = (start + taken, length - taken);
            if self.begun.len() == self.size {
                let row = std::mem::take(&mut self.begun);
                self.push(Buffer::from_vec(row), 0, 1, self.size);
            }
        }
        if let Some(rows) = length.checked_div(self.size) {
            self.push(Buffer::from(bytes.clone()), start, rows, self.size);
            self.begun
                .extend_from_slice(&bytes[start + rows * self.size..start + length]);
        }
    }

    /// Byte strings with a prefix of so many bytes each.
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
                places: Places::Even { start, step },
            });
            self.rows += rows;
        }
    }

    pub(super) fn finish(self, rows: usize) -> Option<Fixed> {
        (self.rows == rows && self.begun.is_empty())
            .then(|| Fixed::new(self.size, rows, self.blocks))
    }
}

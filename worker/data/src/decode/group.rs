//! A row group in memory.

use arrow_buffer::BooleanBuffer;

use crate::{column::Decoded, rows::SomeRows};

/// A row group in memory: its rows in the order of the file, all or those that are needed.
#[derive(Debug)]
pub(crate) struct DecodedGroup {
    /// In the order of the selection.
    pub(crate) columns: Vec<Decoded>,
    pub(crate) rows: u32,
    /// The rows that the predicate keeps; all if there is no predicate. If it keeps none there is no column.
    pub(crate) keep: Option<BooleanBuffer>,
    /// The rows that the columns hold; all if nothing. Those that are kept are among them.
    pub(crate) held: Option<SomeRows>,
    /// Bytes of memory that it holds.
    pub(crate) bytes: usize,
}

impl DecodedGroup {
    pub(crate) fn new(columns: Vec<Decoded>, rows: u32) -> Self {
        let bytes = columns.iter().map(Decoded::bytes).sum();
        Self {
            columns,
            rows,
            keep: None,
            held: None,
            bytes,
        }
    }

    /// A group of which no row is kept.
    pub(super) fn dropped(rows: u32) -> Self {
        Self {
            keep: Some(BooleanBuffer::new_unset(rows as usize)),
            ..Self::new(Vec::new(), rows)
        }
    }

    /// Where a row is in the columns, which hold it.
    #[inline]
    pub(crate) fn place(&self, row: u32) -> u32 {
        self.held.as_ref().map_or(row, |held| held.place(row))
    }

    /// Whether the predicate keeps no row.
    pub(crate) fn is_dropped(&self) -> bool {
        self.keep
            .as_ref()
            .is_some_and(|keep| keep.count_set_bits() == 0)
    }
}

//! A decoded row group.

use arrow_buffer::BooleanBuffer;

use crate::{column::DecodedColumn, row_ranges::RowRanges};

/// A decoded row group: all of its rows in file order, or a subset.
#[derive(Debug)]
pub(crate) struct DecodedGroup {
    /// In the order of the selection.
    pub(crate) columns: Vec<DecodedColumn>,
    pub(crate) rows: u32,
    /// The rows that the predicate keeps; `None` without a predicate. If it keeps no row, there are no columns.
    pub(crate) keep: Option<BooleanBuffer>,
    /// The rows that the columns hold; `None` if all. Includes all kept rows.
    pub(crate) held: Option<RowRanges>,
    /// Bytes of memory in use.
    pub(crate) bytes: usize,
}

impl DecodedGroup {
    pub(crate) fn new(columns: Vec<DecodedColumn>, rows: u32) -> Self {
        let bytes = columns.iter().map(DecodedColumn::bytes).sum();
        Self {
            columns,
            rows,
            keep: None,
            held: None,
            bytes,
        }
    }

    /// A row group without kept rows.
    pub(super) fn dropped(rows: u32) -> Self {
        Self {
            keep: Some(BooleanBuffer::new_unset(rows as usize)),
            ..Self::new(Vec::new(), rows)
        }
    }

    /// The index of a row in the columns, which must hold it.
    #[inline]
    pub(crate) fn row_index(&self, row: u32) -> u32 {
        self.held.as_ref().map_or(row, |held| held.index_of(row))
    }

    /// Whether the predicate keeps no row.
    pub(crate) fn is_dropped(&self) -> bool {
        self.keep
            .as_ref()
            .is_some_and(|keep| keep.count_set_bits() == 0)
    }
}

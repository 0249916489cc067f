//! Batches: columns, and the origin of each row.

use arrow_array::new_empty_array;
use arrow_schema::SchemaRef;

use crate::column::Column;

/// Rows as columns of equal length, with their origins.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) schema: SchemaRef,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Origin>,
    pub(crate) spans: Vec<Span>,
    /// Positions of `spans` that could not be read.
    pub(crate) skipped: u64,
}

/// Consecutive positions of a row group that were processed for one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the row group in the data set ([`Dataset::groups`](crate::Dataset::groups)).
    pub group: u32,
    /// The permuted positions `lo..hi`, including rows that a predicate dropped.
    pub lo: u32,
    /// The end of the positions, exclusive.
    pub hi: u32,
}

/// The origin of a row of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index of its span in [`Batch::spans`].
    pub span: u32,
    /// The row within its row group, in file order.
    pub row: u32,
}

impl Batch {
    /// A batch without rows.
    pub(crate) fn empty(schema: SchemaRef, widths: &[Option<usize>]) -> Self {
        let columns = (schema.fields().iter().enumerate())
            .map(|(index, field)| Column {
                array: new_empty_array(field.data_type()),
                width: widths.get(index).copied().flatten(),
            })
            .collect();
        Self {
            schema,
            columns,
            rows: Vec::new(),
            spans: Vec::new(),
            skipped: 0,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Names and types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The columns, in the order of the schema.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The column with this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let (index, _) = self.schema.column_with_name(name)?;
        self.columns.get(index)
    }

    /// The positions that were processed for this batch: one span for each piece. Each position is in one span of one
    /// batch, even if a predicate dropped its row. These positions count as read.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The origin of each row.
    pub fn origins(&self) -> &[Origin] {
        &self.rows
    }

    /// Number of rows that were processed for this batch, including rows that a predicate dropped.
    pub fn rows_processed(&self) -> u64 {
        self.spans
            .iter()
            .map(|span| u64::from(span.hi - span.lo))
            .sum()
    }

    /// Number of rows that were processed for this batch and could not be read, under
    /// [`OnError::Skip`](crate::OnError::Skip).
    pub fn rows_skipped(&self) -> u64 {
        self.skipped
    }
}

//! What the reader hands out: columns, and where each row came from.

use arrow_array::new_empty_array;
use arrow_schema::SchemaRef;

use crate::column::Column;

/// Rows, as columns of equal length, with their provenance.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) schema: SchemaRef,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Origin>,
    pub(crate) spans: Vec<Span>,
}

/// Consecutive positions of a row group that were processed for one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub group: u32,
    /// The permuted positions `lo..hi`, with rows that a predicate dropped.
    pub lo: u32,
    pub hi: u32,
}

/// Where a row of a batch came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Number of its span in [`Batch::spans`].
    pub span: u32,
    /// The row within its group, in the order of the file.
    pub row: u32,
}

impl Batch {
    /// No rows at all.
    pub(crate) fn empty(schema: SchemaRef, widths: &[Option<usize>]) -> Self {
        let columns = (schema.fields().iter().enumerate())
            .map(|(place, field)| Column {
                array: new_empty_array(field.data_type()),
                width: widths.get(place).copied().flatten(),
            })
            .collect();
        Self {
            schema,
            columns,
            rows: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Number of rows in it.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Names and types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// In the order of the schema.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let (place, _) = self.schema.column_with_name(name)?;
        self.columns.get(place)
    }

    /// What was processed for this batch, a span for each piece that it touched. A position is in one span
    /// of one batch, whether a predicate kept its row or not: this is what counts as read.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Where each row came from: as many as there are rows.
    pub fn origins(&self) -> &[Origin] {
        &self.rows
    }

    /// Number of rows that were processed for it, with those that a predicate dropped.
    pub fn rows_processed(&self) -> u64 {
        self.spans
            .iter()
            .map(|span| u64::from(span.hi - span.lo))
            .sum()
    }
}

//! Columns whose rows differ in length or may be missing: lists of numbers, byte strings and strings.
//!
//! The levels of a page tell the lengths of its lists, and which rows are missing. Plain values stay where the page was
//! decompressed, or where it was read if it is not compressed: a row is a place in these bytes. Only other encodings of
//! numbers, front-coded strings and rows that two pages share are written to a second buffer, whose size is known before.
//!
//! Whatever does not fit together is `None`: Arrow's reader decodes the column again then, and says why it cannot.

mod byte_strings;
mod delta;
mod list_rows;
mod lists;
mod numbers;
#[cfg(test)]
mod tests;
mod validity;

use arrow_schema::DataType;

use self::list_rows::ListRows;
use super::{
    claims::check_memory,
    column_chunk::ColumnChunk,
    page_path::{Leaf, Values},
};
use crate::{
    buffers::BufferPool,
    column::{ColumnData, Span},
    error::{Problem, Result},
};

/// Decodes the column. With `page_rows`, data pages have these numbers of whole rows.
///
/// # Errors
/// If there is no memory for the rows.
pub(super) fn decode(
    leaf: Leaf,
    data_type: &DataType,
    chunk: &ColumnChunk,
    page_rows: Option<&[usize]>,
    buffers: &BufferPool,
) -> Result<Option<ColumnData>> {
    let Some(optional) = leaf.varying else {
        return Ok(None);
    };
    let values: usize = chunk.data.iter().map(|page| page.values).sum();
    if values < leaf.rows || page_rows.is_some_and(|rows| rows.len() != chunk.data.len()) {
        return Ok(None);
    }
    // A bit for each value and for each row, in buffers that grow by doubling.
    check_memory((values / 2) as u64)?;
    match leaf.values {
        Values::Lists { number, .. } => {
            let rows = ListRows::new(optional, table(leaf.rows)?, leaf.rows);
            lists::decode(rows, number, data_type, chunk, page_rows, buffers)
        }
        Values::Bytes { is_text } => {
            let values = chunk.data.iter().map(|page| page.values);
            if page_rows.is_some_and(|rows| !values.eq(rows.iter().copied())) {
                return Ok(None);
            }
            let rows = byte_strings::decode(leaf, is_text, chunk, buffers)?;
            Ok(rows.map(ColumnData::VariableWidth))
        }
    }
}

/// An empty table for this many rows.
///
/// # Errors
/// If there is no memory for it.
fn table(rows: usize) -> Result<Vec<Span>> {
    let bytes = rows as u64 * size_of::<Span>() as u64;
    check_memory(bytes)?;
    let mut spans = Vec::new();
    (spans.try_reserve_exact(rows)).map_err(|_| Problem::OutOfMemory { bytes })?;
    Ok(spans)
}

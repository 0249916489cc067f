//! Gathers the rows of a batch from their row groups.

use arrow_array::new_empty_array;
use arrow_buffer::{MutableBuffer, NullBuffer};
use arrow_schema::{DataType, Field};
use arrow_select::interleave::interleave;

use super::{Column, ColumnData, DecodedColumn, FixedWidth, VariableWidth, assemble};
use crate::{
    cpu_cache::{CACHE_LINE, prefetch},
    error::{Error, Problem, Result},
};

/// A row of a batch: the index of its source and the row there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) source: u32,
    pub(crate) row: u32,
}

/// Gathers one column of a batch: the picked rows of each source.
///
/// # Errors
/// If the batch holds more values than the type can address.
pub(crate) fn gather(field: &Field, sources: &[&DecodedColumn], picks: &[Pick]) -> Result<Column> {
    let data_type = field.data_type();
    if picks.is_empty() {
        let array = new_empty_array(data_type);
        return Ok(Column { array, width: None });
    }
    if let Some(sources) = all_fixed(sources) {
        return fixed(data_type, &sources, picks).map_err(|error| error.in_column(field.name()));
    }
    if let (true, Some(sources)) = (assemble::has_offsets(data_type), all_in_buffers(sources)) {
        return varying(data_type, &sources, picks).map_err(|error| error.in_column(field.name()));
    }
    let arrays: Vec<&dyn arrow_array::Array> = sources
        .iter()
        .map(|source| &**source.array(data_type))
        .collect();
    let indices: Vec<(usize, usize)> = picks
        .iter()
        .map(|pick| (pick.source as usize, pick.row as usize))
        .collect();
    let array = interleave(&arrays, &indices).map_err(|error| {
        Error::from(Problem::Corrupt(error.to_string())).in_column(field.name())
    })?;
    Ok(Column { array, width: None })
}

/// The sources, if all are fixed-width with the same size.
fn all_fixed<'a>(sources: &[&'a DecodedColumn]) -> Option<Vec<&'a FixedWidth>> {
    let fixed: Option<Vec<&FixedWidth>> = sources
        .iter()
        .map(|source| match &source.data {
            ColumnData::FixedWidth(fixed) => Some(fixed),
            _ => None,
        })
        .collect();
    fixed.filter(|fixed| {
        let mut sizes = fixed.iter().map(|source| source.size());
        sizes
            .next()
            .is_some_and(|first| sizes.all(|size| size == first))
    })
}

/// Rows of a column of variable width, as a row group has them.
#[derive(Clone, Copy)]
enum Rows<'a> {
    Fixed(&'a FixedWidth),
    Varying(&'a VariableWidth),
}

impl<'a> Rows<'a> {
    #[inline]
    fn row(self, row: usize) -> &'a [u8] {
        match self {
            Self::Fixed(fixed) => fixed.row(row),
            Self::Varying(varying) => varying.row(row),
        }
    }

    fn is_null(self, row: usize) -> bool {
        matches!(self, Self::Varying(varying) if varying.is_null(row))
    }

    /// Bytes of each row, if all have the same.
    fn size(self) -> Option<usize> {
        match self {
            Self::Fixed(fixed) => Some(fixed.size()),
            Self::Varying(varying) => varying.size(),
        }
    }
}

/// The sources, if none is an Arrow array.
fn all_in_buffers<'a>(sources: &[&'a DecodedColumn]) -> Option<Vec<Rows<'a>>> {
    (sources.iter())
        .map(|source| match &source.data {
            ColumnData::FixedWidth(fixed) => Some(Rows::Fixed(fixed)),
            ColumnData::VariableWidth(varying) => Some(Rows::Varying(varying)),
            ColumnData::Arrow(_) => None,
        })
        .collect()
}

fn fixed(data_type: &DataType, sources: &[&FixedWidth], picks: &[Pick]) -> Result<Column> {
    let size = sources[0].size();
    let bytes = picks.len() * size;
    if !assemble::addressable(data_type, bytes) {
        return Err(Problem::BatchTooLarge.into());
    }
    let mut values = MutableBuffer::with_capacity(bytes);
    match size {
        4 => copy_small::<4>(sources, picks, &mut values),
        8 => copy_small::<8>(sources, picks, &mut values),
        _ => {
            let row = |pick: &Pick| sources[pick.source as usize].row(pick.row as usize);
            copy(row, picks, &mut values);
        }
    }
    Ok(Column {
        array: assemble::fixed(data_type, picks.len(), size, values.into()),
        width: width(data_type, size),
    })
}

/// Each row is prefetched this many rows before its copy, since rows are spread over more memory than any cache holds.
const PREFETCH_DISTANCE: usize = 16;

fn copy<'a>(row: impl Fn(&Pick) -> &'a [u8], picks: &[Pick], values: &mut MutableBuffer) {
    let mut in_flight: [&[u8]; PREFETCH_DISTANCE] = Default::default();
    for (index, pick) in picks.iter().enumerate() {
        let row = row(pick);
        prefetch_row(row);
        values.extend_from_slice(std::mem::replace(
            &mut in_flight[index % PREFETCH_DISTANCE],
            row,
        ));
    }
    for index in picks.len()..picks.len() + PREFETCH_DISTANCE {
        values.extend_from_slice(in_flight[index % PREFETCH_DISTANCE]);
    }
}

/// Prefetches the first half kilobyte of a row. The hardware prefetcher continues from there.
#[inline]
fn prefetch_row(row: &[u8]) {
    if let Some(last) = row.len().checked_sub(1) {
        // A row that begins within a cache line touches one line more.
        for offset in (0..=last + CACHE_LINE).step_by(CACHE_LINE).take(9) {
            prefetch(&row[offset.min(last)]);
        }
    }
}

/// With a constant size, a row is one move without a call.
fn copy_small<const SIZE: usize>(
    sources: &[&FixedWidth],
    picks: &[Pick],
    values: &mut MutableBuffer,
) {
    for pick in picks {
        let row = sources[pick.source as usize].row(pick.row as usize);
        if let Some(row) = row.first_chunk::<SIZE>() {
            values.extend_from_slice(row);
        }
    }
}

/// Values a row for lists, bytes a row for byte strings; `None` for numbers.
pub(super) fn width(data_type: &DataType, size: usize) -> Option<usize> {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            Some(size / field.data_type().primitive_width()?)
        }
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => Some(size),
        _ => None,
    }
}

fn varying(data_type: &DataType, sources: &[Rows<'_>], picks: &[Pick]) -> Result<Column> {
    let row = |pick: &Pick| sources[pick.source as usize].row(pick.row as usize);
    let mut end = 0;
    let ends: Vec<usize> = picks
        .iter()
        .map(|pick| {
            end += row(pick).len();
            end
        })
        .collect();
    if !assemble::addressable(data_type, end / assemble::unit(data_type)) {
        return Err(Problem::BatchTooLarge.into());
    }
    let mut values = MutableBuffer::with_capacity(end);
    copy(row, picks, &mut values);
    let is_sparse = |rows: &Rows<'_>| matches!(rows, Rows::Varying(rows) if rows.has_nulls());
    let nulls = sources.iter().any(is_sparse).then(|| {
        let is_valid = |pick: &Pick| !sources[pick.source as usize].is_null(pick.row as usize);
        NullBuffer::from_iter(picks.iter().map(is_valid))
    });
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    let size = (sources.iter().map(|source| source.size()))
        .reduce(|first, other| first.filter(|_| first == other))
        .flatten();
    Ok(Column {
        array: assemble::varying(data_type, &ends, values.into(), nulls),
        width: size.and_then(|size| width(data_type, size)),
    })
}

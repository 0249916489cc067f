//! The rows of a batch, copied together from the row groups they are in.

use arrow_buffer::MutableBuffer;
use arrow_schema::{DataType, Field};
use arrow_select::interleave::interleave;

use super::{Column, Decoded, Fixed, Form, Varying, assemble};
use crate::error::{Error, Problem, Result};

/// A row of a batch: which of its sources it comes from, and which row it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) source: u32,
    pub(crate) row: u32,
}

/// One column of a batch: of each source, its rows that are picked.
///
/// # Errors
/// The batch holds more of the column than its type can address.
pub(crate) fn gather(field: &Field, sources: &[&Decoded], picks: &[Pick]) -> Result<Column> {
    let data_type = field.data_type();
    if let Some(sources) = all_fixed(sources) {
        return fixed(data_type, &sources, picks).map_err(|error| error.in_column(field.name()));
    }
    if let Some(sources) = all_varying(sources) {
        return varying(data_type, &sources, picks).map_err(|error| error.in_column(field.name()));
    }
    let arrays: Vec<&dyn arrow_array::Array> = sources
        .iter()
        .map(|source| &**source.array(data_type))
        .collect();
    let places: Vec<(usize, usize)> = picks
        .iter()
        .map(|pick| (pick.source as usize, pick.row as usize))
        .collect();
    let array = interleave(&arrays, &places).map_err(|error| {
        Error::from(Problem::Corrupt(error.to_string())).in_column(field.name())
    })?;
    Ok(Column { array, width: None })
}

/// The sources, if all have rows of the same size.
fn all_fixed<'a>(sources: &[&'a Decoded]) -> Option<Vec<&'a Fixed>> {
    let fixed: Option<Vec<&Fixed>> = sources
        .iter()
        .map(|source| match &source.form {
            Form::Fixed(fixed) => Some(fixed),
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

fn all_varying<'a>(sources: &[&'a Decoded]) -> Option<Vec<&'a Varying>> {
    sources
        .iter()
        .map(|source| match &source.form {
            Form::Varying(varying) => Some(varying),
            _ => None,
        })
        .collect()
}

fn fixed(data_type: &DataType, sources: &[&Fixed], picks: &[Pick]) -> Result<Column> {
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
            for pick in picks {
                values.extend_from_slice(sources[pick.source as usize].row(pick.row as usize));
            }
        }
    }
    Ok(Column {
        array: assemble::fixed(data_type, picks.len(), size, values.into()),
        width: width(data_type, size),
    })
}

/// With the size known, a row is one move and no call.
fn copy_small<const SIZE: usize>(sources: &[&Fixed], picks: &[Pick], values: &mut MutableBuffer) {
    for pick in picks {
        let row = sources[pick.source as usize].row(pick.row as usize);
        if let Some(row) = row.first_chunk::<SIZE>() {
            values.extend_from_slice(row);
        }
    }
}

/// Values per row of a list, bytes per row of a byte string; numbers have none.
fn width(data_type: &DataType, size: usize) -> Option<usize> {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            Some(size / field.data_type().primitive_width()?)
        }
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => Some(size),
        _ => None,
    }
}

fn varying(data_type: &DataType, sources: &[&Varying], picks: &[Pick]) -> Result<Column> {
    let row = |pick: &Pick| sources[pick.source as usize].row(pick.row as usize);
    let mut end = 0;
    let ends: Vec<usize> = picks
        .iter()
        .map(|pick| {
            end += row(pick).len();
            end
        })
        .collect();
    if !assemble::addressable(data_type, end) {
        return Err(Problem::BatchTooLarge.into());
    }
    let mut values = MutableBuffer::with_capacity(end);
    for pick in picks {
        values.extend_from_slice(row(pick));
    }
    Ok(Column {
        array: assemble::varying(data_type, &ends, values.into()),
        width: None,
    })
}

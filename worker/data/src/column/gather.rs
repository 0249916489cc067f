//! The rows of a batch, copied together from the row groups they are in.

use arrow_array::new_empty_array;
use arrow_buffer::MutableBuffer;
use arrow_schema::{DataType, Field};
use arrow_select::interleave::interleave;

use super::{Column, Decoded, Fixed, Form, Varying, assemble};
use crate::{
    cache::{LINE, ask_for},
    error::{Error, Problem, Result},
};

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
    if picks.is_empty() {
        let array = new_empty_array(data_type);
        return Ok(Column { array, width: None });
    }
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
        _ => copy(sources, picks, &mut values),
    }
    Ok(Column {
        array: assemble::fixed(data_type, picks.len(), size, values.into()),
        width: width(data_type, size),
    })
}

/// Rows come from all over the buffer, which no cache holds: each is asked for so many rows before its copy.
const AHEAD: usize = 16;

fn copy(sources: &[&Fixed], picks: &[Pick], values: &mut MutableBuffer) {
    let mut asked: [&[u8]; AHEAD] = Default::default();
    for (place, pick) in picks.iter().enumerate() {
        let row = sources[pick.source as usize].row(pick.row as usize);
        ask_for_row(row);
        values.extend_from_slice(std::mem::replace(&mut asked[place % AHEAD], row));
    }
    for place in picks.len()..picks.len() + AHEAD {
        values.extend_from_slice(asked[place % AHEAD]);
    }
}

/// Asks for the first half kilobyte of a row; of what follows the processor sees the direction by itself.
#[inline]
fn ask_for_row(row: &[u8]) {
    if let Some(last) = row.len().checked_sub(1) {
        // What begins within a line ends in one line more.
        for at in (0..=last + LINE).step_by(LINE).take(9) {
            ask_for(&row[at.min(last)]);
        }
    }
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

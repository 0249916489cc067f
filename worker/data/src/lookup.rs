//! Rows by their number, for looking at data. It reads beside the readers and changes no position.

use std::collections::BTreeMap;

use crate::{
    batch::{Batch, Origin, Span},
    column::{DecodedColumn, Pick, gather},
    dataset::Dataset,
    decode::Decoder,
    error::{Error, Problem, Result},
};

/// The rows with these numbers, in this order. Rows are numbered in the order of the files and within them, from 0; a predicate does
/// not count. The spans of the batch are empty, since no row counts as processed.
///
/// # Errors
/// If there is no such row, or if a row group cannot be read.
pub(crate) fn rows_at(dataset: &Dataset, decoder: &Decoder, numbers: &[u64]) -> Result<Batch> {
    let schema = decoder.selection.schema.clone();
    let starts = starts(dataset);
    // By row group: its rows, sorted.
    let mut wanted: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut places = Vec::with_capacity(numbers.len());
    for number in numbers {
        let (group, row) = place(&starts, *number)?;
        wanted.entry(group).or_default().push(row);
        places.push((group, row));
    }
    let (mut sources, mut spans) = (Vec::with_capacity(wanted.len()), Vec::new());
    // By row group: the index of its source.
    let mut indexes = BTreeMap::new();
    for (group, rows) in &mut wanted {
        rows.sort_unstable();
        rows.dedup();
        indexes.insert(*group, sources.len() as u32);
        // Only these rows stay in memory.
        sources.push(copy(decoder, *group, rows)?);
        let (group, lo, hi) = (*group, 0, 0);
        spans.push(Span { group, lo, hi });
    }
    let (mut picks, mut origins) = (Vec::new(), Vec::new());
    for (group, row) in places {
        let source = indexes[&group];
        let at = wanted[&group].binary_search(&row).unwrap_or_default();
        picks.push(Pick {
            source,
            row: at as u32,
        });
        origins.push(Origin { span: source, row });
    }
    let columns = (schema.fields().iter().enumerate())
        .map(|(number, field)| {
            let sources: Vec<&DecodedColumn> =
                sources.iter().map(|columns| &columns[number]).collect();
            gather(field, &sources, &picks)
        })
        .collect::<Result<_>>()?;
    Ok(Batch {
        schema,
        columns,
        rows: origins,
        spans,
        skipped: 0,
    })
}

/// The number of the first row of each row group, and the number of all rows.
fn starts(dataset: &Dataset) -> Vec<u64> {
    let mut all = 0;
    let mut starts: Vec<u64> = (dataset.groups().iter())
        .map(|group| {
            let start = all;
            all += u64::from(group.rows);
            start
        })
        .collect();
    starts.push(all);
    starts
}

/// The row group and the row in it.
fn place(starts: &[u64], number: u64) -> Result<(u32, u32)> {
    let rows = starts.last().copied().unwrap_or_default();
    if number >= rows {
        let why = format!("there is no row {number}: the data set has {rows} rows, from 0");
        return Err(Error::from(Problem::BadOption(why)));
    }
    // The last of those that begin here: the ones before are empty.
    let group = starts.partition_point(|start| *start <= number) - 1;
    Ok((group as u32, (number - starts[group]) as u32))
}

/// The columns of some rows of a row group, which are sorted.
fn copy(decoder: &Decoder, group: u32, rows: &[u32]) -> Result<Vec<DecodedColumn>> {
    let (columns, held) = decoder.decode_rows(group, rows)?;
    let picks: Vec<Pick> = rows
        .iter()
        .map(|row| Pick {
            source: 0,
            row: held.as_ref().map_or(*row, |held| held.index_of(*row)),
        })
        .collect();
    let fields = decoder.selection.schema.fields().iter();
    (fields.zip(&columns))
        .map(|(field, column)| {
            let copy = gather(field, &[column], &picks)?;
            Ok(DecodedColumn::from_array(copy.array))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_in_one_row_group() {
        let starts = [0, 3, 3, 5];
        let found: Vec<_> = (0..5).map(|row| place(&starts, row).unwrap()).collect();
        assert_eq!(found, [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]);
        let error = place(&starts, 5).unwrap_err().to_string();
        assert!(
            error.contains("there is no row 5: the data set has 5 rows, from 0"),
            "{error}"
        );
        assert!(place(&[0], 0).is_err());
    }
}

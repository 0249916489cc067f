//! Decodes row groups: reads the bytes of the selected columns, then decodes each column separately, so that an error
//! names its column.

#[cfg(any(test, fuzzing))]
mod any_input;
mod brotli;
mod bytes;
mod chunk_source;
mod claims;
mod column;
mod column_chunk;
mod column_paths;
mod fixed_width_fast_path;
mod group;
mod header;
mod hybrid;
mod level_pairs;
mod levels;
mod page_path;
mod page_survey;
mod page_walk;
mod pages;
mod row_blocks;
mod some_pages;
#[cfg(test)]
mod tests;
mod uniform_rows;
mod variable_width;
mod widths;

use std::{
    fs::File,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow_schema::{DataType, Field};
use parquet::{arrow::arrow_reader::ArrowReaderMetadata, file::metadata::ColumnChunkMetaData};

#[cfg(any(test, fuzzing))]
pub use self::any_input::check_any_pages;
pub(crate) use self::group::DecodedGroup;
use self::{
    bytes::GroupBytes,
    claims::{check_memory, check_values, chunk_range},
    column::{ByPages, Cost, GroupColumn},
    column_paths::{ColumnPaths, Path},
};
use crate::{
    buffers::BufferPool,
    caught_panic,
    column::DecodedColumn,
    dataset::{ColumnSource, Dataset, Selection, widen},
    error::{Error, Problem, Result},
    ngram::{NGram, NGramPlan},
    options::ReaderOptions,
    predicate::{Filter, may_hold},
    row_ranges::RowRanges,
    storage::FileInfo,
};

/// Decodes the row groups of a data set.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) selection: Selection,
    pub(crate) filter: Option<Filter>,
    pub(crate) ngram: Option<NGramPlan>,
    pub(crate) buffers: BufferPool,
    /// Bytes of row groups that were read so far.
    bytes_read: AtomicU64,
    /// Bytes of pages that were decompressed so far.
    bytes_decompressed: AtomicU64,
    paths: ColumnPaths,
    /// See [`Self::widths`].
    widths: OnceLock<Box<[Option<usize>]>>,
}

impl Decoder {
    /// # Errors
    /// If a column does not exist or differs between files, or if the predicate is invalid.
    pub(crate) fn new(dataset: Arc<Dataset>, options: &ReaderOptions) -> Result<Self> {
        let filter = options.predicate.clone();
        let ngram = options.ngram.clone();
        if filter.is_some() && ngram.is_some() {
            let why = "windows and a predicate: rows that it drops would be missing in windows";
            return Err(Problem::BadOption(why.to_owned()).into());
        }
        let names = ngram.as_ref().map(NGram::names);
        let names = names.as_deref().or(options.columns.as_deref());
        let selection = Selection::new(&dataset, names)?;
        Ok(Self {
            ngram: ngram
                .map(|ngram| NGramPlan::new(ngram, &dataset, &selection))
                .transpose()?,
            selection,
            filter: filter
                .map(|predicate| Filter::new(&dataset, predicate))
                .transpose()?,
            dataset,
            buffers: BufferPool::default(),
            bytes_read: AtomicU64::new(0),
            bytes_decompressed: AtomicU64::new(0),
            paths: ColumnPaths::default(),
            widths: OnceLock::new(),
        })
    }

    /// Reads and decodes one row group. Blocks.
    ///
    /// # Errors
    /// If the file was removed or changed, or if a page is damaged. The error names file, row group and, if known,
    /// column.
    pub(crate) fn decode(&self, group: u32) -> Result<DecodedGroup> {
        let index = self.dataset.groups()[group as usize].index as usize;
        let file = self.dataset.file_of(group);
        caught_panic::catch(|| self.decode_group(group))
            .unwrap_or_else(|panic| Err(Error::corrupt(panic)))
            .map_err(|error| error.in_file(&file.info.name).in_row_group(index))
    }

    /// Reads and decodes at least these rows of a row group, which are sorted: the columns, and the rows that they hold, or `None`
    /// if they hold all. Blocks.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub(crate) fn decode_rows(
        &self,
        group: u32,
        rows: &[u32],
    ) -> Result<(Vec<DecodedColumn>, Option<RowRanges>)> {
        let index = self.dataset.groups()[group as usize].index as usize;
        let file = self.dataset.file_of(group);
        let decode = || {
            self.check_claims(&self.selection, group)?;
            let ranges = rows.iter().map(|row| *row..*row + 1);
            match self.some_rows(&self.selection, group, ranges)? {
                Some((columns, held)) => Ok((columns, Some(held))),
                None => Ok((self.columns(&self.selection, group)?, None)),
            }
        };
        caught_panic::catch(decode)
            .unwrap_or_else(|panic| Err(Error::corrupt(panic)))
            .map_err(|error: Error| error.in_file(&file.info.name).in_row_group(index))
    }

    /// Bytes of row groups that were read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Bytes of pages that were decompressed so far.
    pub(crate) fn bytes_decompressed(&self) -> u64 {
        self.bytes_decompressed.load(Ordering::Relaxed)
    }

    /// Estimated bytes of a row group in memory: the size in its footer, but at least the size of its fixed-width
    /// types. Dictionary-encoded numbers need more memory than in the file.
    pub(crate) fn bytes(&self, group: u32) -> u64 {
        let width: usize = (self.selection.schema.fields().iter())
            .map(|field| width(field.data_type()))
            .sum();
        let rows = u64::from(self.dataset.groups()[group as usize].rows);
        let least = rows.saturating_mul(width as u64);
        least.max(self.bytes_in_file(group))
    }

    /// Encoded bytes of the selected columns of a row group.
    fn bytes_in_file(&self, group: u32) -> u64 {
        let row_group = &self.dataset.groups()[group as usize];
        let metadata = &self.dataset.file_of(group).metadata;
        let columns = self.selection.columns(row_group.file);
        leaves(metadata, row_group.index as usize, &columns)
            .map(|(_, leaf)| leaf.uncompressed_size().max(0) as u64)
            .fold(0, u64::saturating_add)
    }

    fn decode_group(&self, group: u32) -> Result<DecodedGroup> {
        let rows = self.dataset.groups()[group as usize].rows;
        self.check_claims(&self.selection, group)?;
        if let Some(filter) = &self.filter {
            self.check_claims(&filter.selection, group)?;
            return self.filtered(filter, group, rows);
        }
        if let Some(plan) = &self.ngram {
            self.check_claims(&plan.time, group)?;
        }
        let mut decoded = DecodedGroup::new(self.columns(&self.selection, group)?, rows);
        if let Some(plan) = &self.ngram {
            let times = self.columns(&plan.time, group)?;
            let field = plan.time.schema.field(0);
            decoded.keep = Some(plan.starts(times[0].array(field.data_type()))?);
            if decoded.is_dropped() {
                return Ok(DecodedGroup::dropped(rows));
            }
        }
        Ok(decoded)
    }

    /// Checks what the footer says about the columns of a selection. Without a column of the file, the first one stands
    /// for the number of rows.
    ///
    /// # Errors
    /// If the file cannot hold what its footer says, or if there is not enough memory for the rows.
    fn check_claims(&self, selection: &Selection, group: u32) -> Result<()> {
        let row_group = &self.dataset.groups()[group as usize];
        let file = self.dataset.file_of(group);
        let schema = file.metadata.parquet_schema();
        let columns = selection.columns(row_group.file);
        for (leaf, chunk) in leaves(&file.metadata, row_group.index as usize, &columns) {
            let checked = match file.encrypted.contains(&leaf) {
                true => Err(Problem::Encrypted.into()),
                false => chunk_range(chunk, row_group.rows, file.info.size),
            };
            checked.map_err(|error| error.in_column(schema.get_column_root(leaf).name()))?;
        }
        let chunks = file.metadata.metadata().row_group(row_group.index as usize);
        if let (true, Some(first)) = (columns.is_empty(), chunks.columns().first()) {
            check_values(first, row_group.rows)?;
        }
        // A bit of a predicate's result, and the columns from directory names.
        let rows = u64::from(row_group.rows);
        let sources = selection.sources(row_group.file).iter();
        let in_names =
            (sources.zip(selection.schema.fields())).map(|(source, field)| match source {
                ColumnSource::Partition(value) => {
                    let constant = rows.saturating_mul(width(field.data_type()) as u64);
                    value.bytes(rows).max(constant)
                }
                ColumnSource::Column(_) => 0,
            });
        check_memory(in_names.fold(rows / 8, u64::saturating_add))
    }

    /// Decodes a row group with a predicate. The columns of the predicate come first. If no row is kept, nothing else
    /// is read.
    fn filtered(&self, filter: &Filter, group: u32, rows: u32) -> Result<DecodedGroup> {
        if !may_hold(&self.dataset, filter, group) {
            return Ok(DecodedGroup::dropped(rows));
        }
        let candidates = match self.rows_by_pages(filter, group)? {
            Some(candidates) if candidates.length() == 0 => {
                return Ok(DecodedGroup::dropped(rows));
            }
            Some(candidates) => {
                let ranges = candidates.ranges().iter().cloned();
                self.some_rows(&filter.selection, group, ranges)?
            }
            None => None,
        };
        let (columns, held) = match candidates {
            Some((columns, held)) => (columns, Some(held)),
            None => (self.columns(&filter.selection, group)?, None),
        };
        let column = |number: usize| {
            let field = filter.selection.schema.field(number);
            columns[number].array(field.data_type()).clone()
        };
        let asked = held.as_ref().map_or(rows, RowRanges::length);
        let keep = filter.evaluate(asked as usize, &column)?;
        let keep = held.map_or_else(|| keep.clone(), |held| held.spread(&keep, rows));
        if keep.count_set_bits() == 0 {
            return Ok(DecodedGroup::dropped(rows));
        }
        let kept = (keep.set_slices()).map(|(start, end)| start as u32..end as u32);
        let mut decoded = match self.some_rows(&self.selection, group, kept)? {
            Some((columns, held)) => DecodedGroup {
                held: Some(held),
                ..DecodedGroup::new(columns, rows)
            },
            None => DecodedGroup::new(self.columns(&self.selection, group)?, rows),
        };
        decoded.keep = Some(keep);
        Ok(decoded)
    }

    /// All rows of the columns of a selection.
    fn columns(&self, selection: &Selection, group: u32) -> Result<Vec<DecodedColumn>> {
        let row_group = &self.dataset.groups()[group as usize];
        let file = self.dataset.file_of(group);
        let open = self.dataset.storage().open(&file.info)?;
        let all = || (selection.sources(row_group.file).iter()).zip(selection.schema.fields());
        let group_column = |column: usize| GroupColumn {
            metadata: &file.metadata,
            group: row_group.index as usize,
            column,
            field: file.metadata.schema().field(column),
        };
        let mut decoded: Vec<Option<DecodedColumn>> = Vec::new();
        let mut rest = Vec::new();
        for (source, field) in all() {
            decoded.push(match (source, &open) {
                (ColumnSource::Partition(value), _) => {
                    Some(value.column(field, row_group.rows as usize))
                }
                (ColumnSource::Column(column), Some(open)) => self
                    .decode_from_file(&group_column(*column), open)
                    .map_err(|error| error.in_column(field.name()))?,
                (ColumnSource::Column(_), None) => None,
            });
            if let (None, ColumnSource::Column(column)) = (&decoded[decoded.len() - 1], source) {
                rest.push(*column);
            }
        }
        let ranges = chunks(&file.metadata, row_group.index as usize, &rest);
        let bytes = self.read_ranges(&file.info, ranges)?;
        (decoded.into_iter().zip(all()))
            .map(|(decoded, (source, field))| match (decoded, source) {
                (Some(decoded), ColumnSource::Partition(_)) => Ok(decoded),
                (decoded, ColumnSource::Column(column)) => {
                    let column = group_column(*column);
                    let decoded = match decoded {
                        Some(decoded) => Ok(decoded),
                        None => self.decode_from_memory(&column, &bytes),
                    };
                    decoded
                        .and_then(|decoded| widened(decoded, column.field, field))
                        .map_err(|error| error.in_column(field.name()))
                }
                (None, ColumnSource::Partition(value)) => {
                    Ok(value.column(field, row_group.rows as usize))
                }
            })
            .collect()
    }

    /// The column by its pages, as they are read from its file, if its row groups were decoded by their pages so far.
    fn decode_from_file(
        &self,
        column: &GroupColumn<'_>,
        file: &File,
    ) -> Result<Option<DecodedColumn>> {
        if self.paths.get(column.field.name()) != Some(Path::Pages) {
            return Ok(None);
        }
        let (by_pages, cost) = column.decode_from_file(file, &self.buffers)?;
        Ok(self.decoded(column, by_pages, cost))
    }

    /// The column from the bytes of its chunks: by its pages, or with Arrow's reader.
    fn decode_from_memory(
        &self,
        column: &GroupColumn<'_>,
        bytes: &GroupBytes,
    ) -> Result<DecodedColumn> {
        if self.paths.get(column.field.name()) != Some(Path::Arrow) {
            let (by_pages, cost) = column.by_pages(bytes, &self.buffers)?;
            if let Some(decoded) = self.decoded(column, by_pages, cost) {
                return Ok(decoded);
            }
        }
        let (decoded, cost) = column.decode_with_arrow(bytes)?;
        self.count(cost);
        Ok(decoded)
    }

    /// The column if it was decoded by its pages. Takes note of its path, and of the cost.
    fn decoded(
        &self,
        column: &GroupColumn<'_>,
        by_pages: ByPages,
        cost: Cost,
    ) -> Option<DecodedColumn> {
        self.count(cost);
        let (decoded, path) = match by_pages {
            ByPages::Decoded(decoded) => (Some(decoded), Path::Pages),
            ByPages::Refused => (None, Path::Arrow),
            ByPages::Unsupported => return None,
        };
        self.paths.note(column.field.name(), path);
        decoded
    }

    /// Adds what decoding a column took.
    fn count(&self, cost: Cost) {
        self.bytes_read.fetch_add(cost.read, Ordering::Relaxed);
        (self.bytes_decompressed).fetch_add(cost.decompressed, Ordering::Relaxed);
    }

    /// Reads ranges of a file, and counts their bytes.
    fn read_ranges(&self, file: &FileInfo, ranges: Vec<Range<u64>>) -> Result<GroupBytes> {
        let bytes = GroupBytes::read(self.dataset.storage(), file, ranges)?;
        self.bytes_read.fetch_add(bytes.total(), Ordering::Relaxed);
        Ok(bytes)
    }
}

/// A column of a file as one of the data set, which may have a wider type.
fn widened(decoded: DecodedColumn, from: &Field, to: &Field) -> Result<DecodedColumn> {
    if from.data_type().equals_datatype(to.data_type()) {
        return Ok(decoded);
    }
    let array = decoded.array(from.data_type()).clone();
    widen(array, to.data_type())
        .map(DecodedColumn::from_array)
        .ok_or_else(|| Error::corrupt("it has another type than its footer says"))
}

/// The chunks of some top-level columns, with the index of their leaf.
fn leaves<'a>(
    metadata: &'a ArrowReaderMetadata,
    group: usize,
    columns: &[usize],
) -> impl Iterator<Item = (usize, &'a ColumnChunkMetaData)> {
    let schema = metadata.parquet_schema();
    let chunks = metadata.metadata().row_group(group).columns();
    chunks
        .iter()
        .enumerate()
        .filter(|(leaf, _)| columns.contains(&schema.get_column_root_idx(*leaf)))
}

/// The byte ranges of the chunks of some top-level columns.
fn chunks(metadata: &ArrowReaderMetadata, group: usize, columns: &[usize]) -> Vec<Range<u64>> {
    leaves(metadata, group, columns)
        .map(|(_, leaf)| {
            let (start, length) = leaf.byte_range();
            start..start + length
        })
        .collect()
}

/// Bytes of a value in memory; 0 if the type does not determine it.
fn width(kind: &DataType) -> usize {
    match kind {
        DataType::FixedSizeList(field, length) => width(field.data_type()) * *length as usize,
        DataType::FixedSizeBinary(length) => *length as usize,
        _ => kind.primitive_width().unwrap_or(0),
    }
}

//! The rows of a row group for which a predicate may be true, from the statistics of its pages.
//!
//! Pages of different columns begin at different rows. So a row group is split wherever a page of any column begins.
//! Each part is then evaluated like a row group, with the bounds of its pages.

use std::{collections::BTreeSet, ops::Range};

use arrow_schema::DataType;
use parquet::{
    data_type::ByteArray,
    file::{
        page_index::{column_index::ColumnIndexMetaData, offset_index::OffsetIndexMetaData},
        statistics::Statistics,
    },
};

use super::{
    Predicate,
    prune::{Bounds, may_be},
};
use crate::row_ranges::RowRanges;

/// The statistics of the pages of a column.
#[derive(Debug)]
pub(crate) struct ColumnPages {
    column: String,
    /// The first row of each page, and the number of all rows at the end.
    starts: Vec<u32>,
    bounds: Vec<Bounds>,
}

impl ColumnPages {
    /// `None` if the two indexes are inconsistent.
    pub(crate) fn new(
        column: &str,
        data_type: &DataType,
        offsets: &OffsetIndexMetaData,
        index: &ColumnIndexMetaData,
        rows: u32,
    ) -> Option<Self> {
        let first = |page: &parquet::file::page_index::offset_index::PageLocation| {
            u32::try_from(page.first_row_index).ok()
        };
        let mut starts: Vec<u32> = offsets
            .page_locations()
            .iter()
            .map(first)
            .collect::<Option<_>>()?;
        starts.push(rows);
        let pages = starts.len() - 1;
        let fits =
            starts.first() == Some(&0) && starts.is_sorted() && index.num_pages() == pages as u64;
        fits.then(|| Self {
            column: column.to_owned(),
            bounds: (0..pages)
                .map(|page| bounds(index, page, data_type, starts[page + 1] - starts[page]))
                .collect(),
            starts,
        })
    }

    fn bounds_at(&self, row: u32) -> Bounds {
        let after = self.starts.partition_point(|start| *start <= row);
        let page = after.saturating_sub(1).min(self.bounds.len() - 1);
        self.bounds[page].clone()
    }
}

/// The rows for which the predicate may be true. A column without an entry in `columns` has no statistics.
pub(crate) fn rows_that_may_hold(
    predicate: &Predicate,
    columns: &[ColumnPages],
    rows: u32,
) -> RowRanges {
    let starts = columns
        .iter()
        .flat_map(|column| column.starts.iter().copied());
    let cuts: BTreeSet<u32> = starts.chain([0, rows]).filter(|cut| *cut <= rows).collect();
    let cuts: Vec<u32> = cuts.into_iter().collect();
    let parts = cuts.windows(2).map(|cut| cut[0]..cut[1]);
    RowRanges::new(parts.filter(|part: &Range<u32>| {
        let bounds = |name: &str| {
            let mut known = columns.iter().filter(|column| column.column == name);
            known
                .next()
                .map(|column| column.bounds_at(part.start))
                .unwrap_or_default()
        };
        may_be(predicate, true, &bounds)
    }))
}

/// The bounds of one page.
fn bounds(index: &ColumnIndexMetaData, page: usize, data_type: &DataType, rows: u32) -> Bounds {
    let nulls = if index.is_null_page(page) {
        Some(u64::from(rows))
    } else {
        index
            .null_count(page)
            .and_then(|nulls| nulls.try_into().ok())
    };
    let bytes = |bytes: Option<&[u8]>| bytes.map(|bytes| ByteArray::from(bytes.to_vec()));
    macro_rules! statistics {
        ($make:ident, $index:expr) => {
            Statistics::$make(
                $index.min_value(page).copied(),
                $index.max_value(page).copied(),
                None,
                nulls,
                false,
            )
        };
    }
    let statistics = match index {
        ColumnIndexMetaData::BOOLEAN(index) => statistics!(boolean, index),
        ColumnIndexMetaData::INT32(index) => statistics!(int32, index),
        ColumnIndexMetaData::INT64(index) => statistics!(int64, index),
        ColumnIndexMetaData::FLOAT(index) => statistics!(float, index),
        ColumnIndexMetaData::DOUBLE(index) => statistics!(double, index),
        ColumnIndexMetaData::BYTE_ARRAY(index) => Statistics::byte_array(
            bytes(index.min_value(page)),
            bytes(index.max_value(page)),
            None,
            nulls,
            false,
        ),
        ColumnIndexMetaData::INT96(_) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(_) => {
            return Bounds::default();
        }
    };
    Bounds::from_statistics(&statistics, data_type, rows)
}

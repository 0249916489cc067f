//! NGrams: windows of consecutive rows of a row group, each as one row of a batch.
//!
//! A window may begin at any row and never leaves its row group. It is valid if no two adjacent rows are further apart
//! in time than [`NGram::delta`]. A row that begins no valid window is processed and is in no batch. So rows are
//! counted by the first row of a window, and each guarantee about rows holds for windows. The rows of a row group must
//! be sorted by timestamp.

use arrow_array::{Array, ArrayRef, cast::AsArray, types as primitive};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};

use crate::{
    dataset::{Dataset, Selection},
    error::{Error, Problem, Result},
};

/// The shape of the windows and their columns; see the module.
#[derive(Clone, Debug, PartialEq)]
pub struct NGram {
    /// Rows of a window, at least 1.
    pub length: u32,
    /// A column of numbers, dates or times.
    pub timestamp: String,
    /// Maximum difference between the timestamps of two adjacent rows, in the unit of the column.
    pub delta: f64,
    /// Whether windows may share rows. Otherwise a window begins after the last timestamp of the previous one.
    pub overlap: bool,
    /// The columns of a batch: the row of the window, from 0, and a column of the files. The column is named
    /// `0/column`.
    pub columns: Vec<(u32, String)>,
}

/// An [`NGram`] of one data set.
#[derive(Clone, Debug)]
pub(crate) struct NGramPlan {
    pub(crate) windows: NGram,
    /// The timestamp column.
    pub(crate) time: Selection,
    /// The schema of a batch.
    pub(crate) schema: SchemaRef,
    /// For each column of a batch: the row of the window, and the index of the column in the selection.
    pub(crate) columns: Vec<(u32, usize)>,
}

impl NGram {
    /// The columns of the files that are read, each once.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (_, name) in &self.columns {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

impl NGramPlan {
    /// # Errors
    /// If a column does not exist, if a row is beyond the end of the window, or if the timestamps are neither numbers
    /// nor times.
    pub(crate) fn new(windows: NGram, dataset: &Dataset, selection: &Selection) -> Result<Self> {
        let bad = |why: String| Err(Error::from(Problem::BadOption(why)));
        if windows.length == 0 {
            return bad("a window has at least one row".to_owned());
        }
        if windows.delta.is_nan() {
            return bad("the largest difference of timestamps is no number".to_owned());
        }
        if let Some((row, name)) = windows
            .columns
            .iter()
            .find(|(row, _)| *row >= windows.length)
        {
            let length = windows.length;
            return bad(format!("{row}/{name}: a window has {length} rows, from 0"));
        }
        let time = Selection::new(dataset, Some(std::slice::from_ref(&windows.timestamp)))?;
        if let [field] = &time.schema.fields()[..] {
            // Checks the type of the timestamps before any row group is read.
            starts(&windows, &arrow_array::new_empty_array(field.data_type()))?;
        }
        let mut fields: Vec<FieldRef> = Vec::new();
        let mut columns = Vec::new();
        for (row, name) in &windows.columns {
            let Some((number, field)) = selection.schema.column_with_name(name) else {
                continue;
            };
            let named = Field::clone(field).with_name(format!("{row}/{name}"));
            fields.push(named.into());
            columns.push((*row, number));
        }
        Ok(Self {
            windows,
            time,
            schema: Schema::new(fields).into(),
            columns,
        })
    }

    /// The rows of a row group at which a window begins.
    ///
    /// # Errors
    /// If timestamps are missing or not sorted.
    pub(crate) fn starts(&self, times: &ArrayRef) -> Result<BooleanBuffer> {
        starts(&self.windows, times)
    }
}

fn starts(windows: &NGram, times: &ArrayRef) -> Result<BooleanBuffer> {
    let problem = |problem: Problem| Error::from(problem).in_column(&windows.timestamp);
    if times.null_count() > 0 {
        return Err(problem(Problem::BadTimestamps("a row has none".to_owned())));
    }
    let Some(times) = as_numbers(times) else {
        let found = times.data_type();
        return Err(problem(Problem::BadTimestamps(format!(
            "a column of type {found} is no time"
        ))));
    };
    if let Some(row) = times
        .windows(2)
        .position(|pair| !pair[0].is_at_most(pair[1]))
    {
        let later = row + 1;
        return Err(problem(Problem::BadTimestamps(format!(
            "row {later} of the row group is earlier than row {row}: windows need rows in the order of time"
        ))));
    }
    let length = windows.length as usize;
    // The first row of the current run of rows without a gap.
    let mut unbroken = 0;
    let mut last_end: Option<Timestamp> = None;
    let mut is_start = vec![false; times.len()];
    for end in 0..times.len() {
        if end > 0 && times[end].minus(times[end - 1]) > windows.delta {
            unbroken = end;
        }
        let Some(start) = (end + 1)
            .checked_sub(length)
            .filter(|start| *start >= unbroken)
        else {
            continue;
        };
        if !windows.overlap && last_end.is_some_and(|last| times[start].is_at_most(last)) {
            continue;
        }
        is_start[start] = true;
        last_end = Some(times[end]);
    }
    Ok(BooleanBuffer::from(is_start))
}

/// A timestamp as a number.
#[derive(Clone, Copy, Debug)]
enum Timestamp {
    Int(i128),
    Float(f64),
}

impl Timestamp {
    /// Whether it is not later than `other`.
    fn is_at_most(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => one <= other,
            (one, other) => one.float() <= other.float(),
        }
    }

    fn minus(self, other: Self) -> f64 {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => (one - other) as f64,
            (one, other) => one.float() - other.float(),
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// The values of a column of numbers or times without nulls.
fn as_numbers(array: &ArrayRef) -> Option<Vec<Timestamp>> {
    macro_rules! values {
        ($type:ty, $number:expr) => {
            array
                .as_primitive::<$type>()
                .values()
                .iter()
                .map(|value| $number((*value).into()))
                .collect()
        };
    }
    Some(match array.data_type() {
        DataType::Int8 => values!(primitive::Int8Type, Timestamp::Int),
        DataType::Int16 => values!(primitive::Int16Type, Timestamp::Int),
        DataType::Int32 => values!(primitive::Int32Type, Timestamp::Int),
        DataType::Int64 => values!(primitive::Int64Type, Timestamp::Int),
        DataType::UInt8 => values!(primitive::UInt8Type, Timestamp::Int),
        DataType::UInt16 => values!(primitive::UInt16Type, Timestamp::Int),
        DataType::UInt32 => values!(primitive::UInt32Type, Timestamp::Int),
        DataType::UInt64 => values!(primitive::UInt64Type, Timestamp::Int),
        DataType::Float32 => values!(primitive::Float32Type, Timestamp::Float),
        DataType::Float64 => values!(primitive::Float64Type, Timestamp::Float),
        DataType::Date32 => values!(primitive::Date32Type, Timestamp::Int),
        DataType::Date64 => values!(primitive::Date64Type, Timestamp::Int),
        DataType::Timestamp(TimeUnit::Second, _) => {
            values!(primitive::TimestampSecondType, Timestamp::Int)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            values!(primitive::TimestampMillisecondType, Timestamp::Int)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            values!(primitive::TimestampMicrosecondType, Timestamp::Int)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            values!(primitive::TimestampNanosecondType, Timestamp::Int)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, StringArray};

    use super::*;

    fn windows(length: u32, delta: f64, overlap: bool) -> NGram {
        NGram {
            length,
            timestamp: "t".to_owned(),
            delta,
            overlap,
            columns: Vec::new(),
        }
    }

    fn found(windows: &NGram, times: &[i64]) -> Vec<usize> {
        let times: ArrayRef = Arc::new(Int64Array::from(times.to_vec()));
        starts(windows, &times).unwrap().set_indices().collect()
    }

    #[test]
    fn neighbours_are_no_further_apart_than_allowed() {
        let times = [0, 3, 8, 10, 11, 20, 30];
        assert_eq!(found(&windows(2, 4.0, true), &times), [0, 2, 3]);
        assert_eq!(found(&windows(3, 4.0, true), &times), [2]);
        assert_eq!(found(&windows(1, 0.0, true), &times), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(found(&windows(8, 100.0, true), &times), [] as [usize; 0]);
        assert_eq!(found(&windows(2, 4.0, true), &[]), [] as [usize; 0]);
    }

    #[test]
    fn windows_that_share_nothing() {
        let times = [0, 1, 2, 3, 4, 5, 6];
        assert_eq!(found(&windows(3, 1.0, false), &times), [0, 3]);
        // Rows with the same timestamp belong to the first window that has it.
        assert_eq!(found(&windows(2, 1.0, false), &[0, 1, 1, 2, 3]), [0, 3]);
    }

    #[test]
    fn times_that_are_none_or_out_of_order_are_named() {
        let said = |times: ArrayRef| {
            let error = starts(&windows(2, 1.0, true), &times).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            said(Arc::new(Int64Array::from(vec![1, 3, 2]))),
            "column t: cannot order windows: row 2 of the row group is earlier than row 1: windows need rows in \
             the order of time"
        );
        assert!(
            said(Arc::new(Float64Array::from(vec![1.0, f64::NAN]))).contains("earlier than row 0")
        );
        assert!(said(Arc::new(Int64Array::from(vec![Some(1), None]))).ends_with("a row has none"));
        assert!(
            said(Arc::new(StringArray::from(vec!["x"])))
                .ends_with("a column of type Utf8 is no time")
        );
    }
}

//! Partition columns, which are in directory names and in no file: `day=3/kind=a/part-0.parquet`.
//!
//! This is the layout of Hive and its successors. All directories below the opened path count, and each file name
//! should have the same keys. Values are percent-decoded (`%20`). A column has 64-bit integers if all values are
//! integers, and strings otherwise. `__HIVE_DEFAULT_PARTITION__` is null.

use std::{collections::BTreeMap, sync::Arc};

use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Field, FieldRef};

use crate::column::{Block, ColumnData, DecodedColumn, FixedWidth, RowOffsets};

/// The value of a partition column, for all rows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartitionValue {
    Int(i64),
    Text(Arc<str>),
    Null,
}

/// The partition columns of a data set.
#[derive(Debug, Default)]
pub(crate) struct PartitionColumns {
    columns: BTreeMap<String, PartitionColumn>,
    /// Keys by nesting, outermost first.
    order: Vec<String>,
}

#[derive(Debug)]
struct PartitionColumn {
    field: FieldRef,
    /// By file; `None` if the name of the file lacks the key.
    values: Vec<Option<PartitionValue>>,
}

/// The directory name for null.
const NO_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";

impl PartitionColumns {
    /// Parses file names, relative to the opened path.
    pub(crate) fn from_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut found: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
        let mut order = Vec::new();
        let mut files = 0;
        for name in names {
            for (key, value) in pairs(name) {
                let values = found.entry(key.clone()).or_insert_with(|| {
                    order.push(key);
                    Vec::new()
                });
                values.resize(files, None);
                values.push(Some(value));
            }
            files += 1;
        }
        let columns = found.into_iter().map(|(key, mut values)| {
            values.resize(files, None);
            let partition = PartitionColumn::from_values(&key, &values);
            (key, partition)
        });
        Self {
            columns: columns.collect(),
            order,
        }
    }

    /// Names and types, outermost directory first.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &FieldRef> {
        self.order.iter().map(|key| &self.columns[key].field)
    }

    /// A partition column and its value in a file.
    pub(crate) fn find(&self, name: &str, file: usize) -> Option<(&FieldRef, &PartitionValue)> {
        let partition = self.columns.get(name)?;
        let value = partition.values.get(file)?.as_ref()?;
        Some((&partition.field, value))
    }
}

impl PartitionColumn {
    fn from_values(key: &str, values: &[Option<String>]) -> Self {
        let present = || values.iter().flatten().filter(|value| *value != NO_VALUE);
        let are_integers = present().all(|value| value.parse::<i64>().is_ok());
        let constant = |value: &String| match value.parse() {
            _ if value == NO_VALUE => PartitionValue::Null,
            Ok(value) if are_integers => PartitionValue::Int(value),
            _ => PartitionValue::Text(value.as_str().into()),
        };
        let data_type = if are_integers && present().next().is_some() {
            DataType::Int64
        } else {
            DataType::Utf8
        };
        let is_nullable = present().count() < values.len();
        Self {
            field: Field::new(key, data_type, is_nullable).into(),
            values: values
                .iter()
                .map(|value| value.as_ref().map(constant))
                .collect(),
        }
    }
}

impl PartitionValue {
    /// Bytes of a column of `rows` rows in memory.
    pub(crate) fn bytes(&self, rows: u64) -> u64 {
        let width = match self {
            Self::Int(_) => 0,
            Self::Text(text) => size_of::<i32>() as u64 + text.len() as u64,
            Self::Null => size_of::<i64>() as u64,
        };
        rows.saturating_mul(width)
    }

    /// A column with this value in each row.
    pub(crate) fn column(&self, field: &Field, rows: usize) -> DecodedColumn {
        match self {
            // One value for all rows: a step of 0.
            Self::Int(value) => DecodedColumn::new(ColumnData::FixedWidth(FixedWidth::new(
                size_of::<i64>(),
                rows,
                vec![Block {
                    first: 0,
                    data: Buffer::from_slice_ref([*value]),
                    offsets: RowOffsets { start: 0, step: 0 },
                }],
            ))),
            Self::Text(text) => {
                let texts = std::iter::repeat_n(&**text, rows);
                DecodedColumn::from_array(Arc::new(StringArray::from_iter_values(texts)))
            }
            Self::Null => DecodedColumn::from_array(nulls(field.data_type(), rows)),
        }
    }
}

fn nulls(data_type: &DataType, rows: usize) -> ArrayRef {
    match data_type {
        DataType::Int64 => Arc::new(Int64Array::new(
            vec![0; rows].into(),
            Some(NullBuffer::new_null(rows)),
        )),
        other => arrow_array::new_null_array(other, rows),
    }
}

/// The keys and values in the directories of a name.
fn pairs(name: &str) -> impl Iterator<Item = (String, String)> {
    let (directories, _) = name.rsplit_once('/').unwrap_or_default();
    directories.split('/').filter_map(|directory| {
        let (key, value) = directory.split_once('=')?;
        (!key.is_empty()).then(|| (decoded(key), decoded(value)))
    })
}

/// Percent-decodes a text. Invalid escapes stay as they are.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escape = (*first == b'%')
            .then(|| behind.first_chunk::<2>())
            .flatten();
        let byte = escape
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;

    use super::*;

    fn types(names: &[&str]) -> Vec<(String, DataType, bool)> {
        PartitionColumns::from_names(names.iter().copied())
            .fields()
            .map(|field| {
                let data_type = field.data_type().clone();
                (field.name().clone(), data_type, field.is_nullable())
            })
            .collect()
    }

    #[test]
    fn a_column_is_of_integers_if_all_its_values_are() {
        let int = |name: &str| (name.to_owned(), DataType::Int64, false);
        let text = |name: &str| (name.to_owned(), DataType::Utf8, false);
        assert_eq!(
            types(&["day=3/kind=a/x", "day=-14/kind=7/y"]),
            [int("day"), text("kind")]
        );
        assert_eq!(types(&["x", "below/y"]), []);
        assert_eq!(types(&["=3/x", "day/x"]), []);
    }

    #[test]
    fn values_are_decoded_and_may_be_missing() {
        let partitions = PartitionColumns::from_names(
            ["a%20b=c%2Fd%zz/x", "a%20b=__HIVE_DEFAULT_PARTITION__/y"].into_iter(),
        );
        let value = |file| partitions.find("a b", file).unwrap().1;
        assert_eq!(*value(0), PartitionValue::Text("c/d%zz".into()));
        assert_eq!(*value(1), PartitionValue::Null);
        assert!(partitions.fields().next().unwrap().is_nullable());
        assert!(partitions.find("other", 0).is_none());
    }

    #[test]
    fn a_file_whose_name_lacks_a_key_has_no_such_column() {
        let partitions = PartitionColumns::from_names(["x", "day=1/y", "z"].into_iter());
        let has = |file| partitions.find("day", file).is_some();
        assert_eq!([has(0), has(1), has(2)], [false, true, false]);
    }

    #[test]
    fn columns_hold_the_value_in_each_row() {
        let int = Field::new("n", DataType::Int64, false);
        let column = PartitionValue::Int(-5).column(&int, 3);
        assert_eq!(
            column.array(int.data_type()).to_data(),
            Int64Array::from(vec![-5; 3]).to_data()
        );
        let text = Field::new("s", DataType::Utf8, true);
        let column = PartitionValue::Text("ab".into()).column(&text, 2);
        assert_eq!(
            column.array(text.data_type()).to_data(),
            StringArray::from(vec!["ab"; 2]).to_data()
        );
        for field in [&int, &text] {
            let column = PartitionValue::Null.column(field, 2);
            assert_eq!(column.array(field.data_type()).null_count(), 2);
        }
    }
}

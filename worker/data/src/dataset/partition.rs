//! Columns that are in the names of directories and in no file: `day=3/kind=a/part-0.parquet`.
//!
//! So Hive and what came after it divide a data set. All directories below the place that was opened count,
//! and the same keys are in the name of each file. Values are decoded as in addresses (`%20`). A column is of
//! integers of 64 bits if all its values are, else of strings. `__HIVE_DEFAULT_PARTITION__` is no value.

use std::{collections::BTreeMap, sync::Arc};

use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Field, FieldRef};

use crate::column::{Block, Decoded, Fixed, Form, Places};

/// What a directory's name says about all rows below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Constant {
    Int(i64),
    Text(Arc<str>),
    Null,
}

/// The columns of a data set that are in the names of its files.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    columns: BTreeMap<String, Partition>,
    /// Keys in the order in which directories are nested.
    order: Vec<String>,
}

#[derive(Debug)]
struct Partition {
    field: FieldRef,
    /// By file; nothing if a file's name does not say.
    values: Vec<Option<Constant>>,
}

/// No value, as writers name its directory.
const NO_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";

impl Partitions {
    /// Reads the names of files below the place where they were found.
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
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
            let partition = Partition::of(&key, &values);
            (key, partition)
        });
        Self {
            columns: columns.collect(),
            order,
        }
    }

    /// Names and types, the outermost directory first.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &FieldRef> {
        self.order.iter().map(|key| &self.columns[key].field)
    }

    /// The column of that name, and what it is in a file.
    pub(crate) fn find(&self, name: &str, file: usize) -> Option<(&FieldRef, &Constant)> {
        let partition = self.columns.get(name)?;
        let value = partition.values.get(file)?.as_ref()?;
        Some((&partition.field, value))
    }
}

impl Partition {
    fn of(key: &str, values: &[Option<String>]) -> Self {
        let there = || values.iter().flatten().filter(|value| *value != NO_VALUE);
        let are_integers = there().all(|value| value.parse::<i64>().is_ok());
        let constant = |value: &String| match value.parse() {
            _ if value == NO_VALUE => Constant::Null,
            Ok(value) if are_integers => Constant::Int(value),
            _ => Constant::Text(value.as_str().into()),
        };
        let data_type = if are_integers && there().next().is_some() {
            DataType::Int64
        } else {
            DataType::Utf8
        };
        let is_nullable = there().count() < values.len();
        Self {
            field: Field::new(key, data_type, is_nullable).into(),
            values: values
                .iter()
                .map(|value| value.as_ref().map(constant))
                .collect(),
        }
    }
}

impl Constant {
    /// A column of so many rows that all hold this.
    pub(crate) fn column(&self, field: &Field, rows: usize) -> Decoded {
        match self {
            // One value for all rows: the step from one to the next is nothing.
            Self::Int(value) => Decoded::new(Form::Fixed(Fixed::new(
                size_of::<i64>(),
                rows,
                vec![Block {
                    first: 0,
                    data: Buffer::from_slice_ref([*value]),
                    places: Places::Even { start: 0, step: 0 },
                }],
            ))),
            Self::Text(text) => {
                let texts = std::iter::repeat_n(&**text, rows);
                Decoded::from_array(Arc::new(StringArray::from_iter_values(texts)))
            }
            Self::Null => Decoded::from_array(nulls(field.data_type(), rows)),
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

/// `%20` is a space; what is no such escape stays as it is.
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
        Partitions::of(names.iter().copied())
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
        let partitions =
            Partitions::of(["a%20b=c%2Fd%zz/x", "a%20b=__HIVE_DEFAULT_PARTITION__/y"].into_iter());
        let value = |file| partitions.find("a b", file).unwrap().1;
        assert_eq!(*value(0), Constant::Text("c/d%zz".into()));
        assert_eq!(*value(1), Constant::Null);
        assert!(partitions.fields().next().unwrap().is_nullable());
        assert!(partitions.find("other", 0).is_none());
    }

    #[test]
    fn a_file_whose_name_lacks_a_key_has_no_such_column() {
        let partitions = Partitions::of(["x", "day=1/y", "z"].into_iter());
        let has = |file| partitions.find("day", file).is_some();
        assert_eq!([has(0), has(1), has(2)], [false, true, false]);
    }

    #[test]
    fn columns_hold_the_value_in_each_row() {
        let int = Field::new("n", DataType::Int64, false);
        let column = Constant::Int(-5).column(&int, 3);
        assert_eq!(
            column.array(int.data_type()).to_data(),
            Int64Array::from(vec![-5; 3]).to_data()
        );
        let text = Field::new("s", DataType::Utf8, true);
        let column = Constant::Text("ab".into()).column(&text, 2);
        assert_eq!(
            column.array(text.data_type()).to_data(),
            StringArray::from(vec!["ab"; 2]).to_data()
        );
        for field in [&int, &text] {
            let column = Constant::Null.column(field, 2);
            assert_eq!(column.array(field.data_type()).null_count(), 2);
        }
    }
}

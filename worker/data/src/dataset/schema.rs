//! The selected columns, and whether the files agree in them. By choice they need not: see `merge.rs`.

use arrow_schema::{Field, FieldRef, Schema, SchemaRef};

use super::{Dataset, PartitionValue, partition::PartitionColumns};
use crate::error::{Error, Problem, Result};

/// The columns to read, and their sources in each file.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Name, type and nullability of each column, in the order of the caller.
    pub(crate) schema: SchemaRef,
    /// By file and column.
    sources: Vec<Box<[ColumnSource]>>,
}

/// Where the values of a column come from.
#[derive(Clone, Debug)]
pub(crate) enum ColumnSource {
    /// The file: the index among its top-level columns.
    Column(usize),
    /// The directory name. Null if the file lacks the column.
    Partition(PartitionValue),
}

impl Selection {
    /// Selects `names`, or all columns of the first file.
    ///
    /// # Errors
    /// If a column does not exist, or if a file lacks it or has it with another type and schemas are not merged. Nullability
    /// may differ between files.
    pub(crate) fn new(dataset: &Dataset, names: Option<&[String]>) -> Result<Self> {
        let (Some(first), Some(first_schema)) = (dataset.files().first(), dataset.schema()) else {
            return Ok(Self {
                schema: Schema::empty().into(),
                sources: Vec::new(),
            });
        };
        let mut fields: Vec<FieldRef> = match names {
            None => first_schema.fields().iter().cloned().collect(),
            Some(names) => names
                .iter()
                .map(|name| find(first_schema, name).map(|(_, field)| field.clone()))
                .collect::<Option<_>>()
                .ok_or_else(|| unknown(first_schema, names))?,
        };
        let mut sources = Vec::with_capacity(dataset.files().len());
        for (number, file) in dataset.files().iter().enumerate() {
            let mut file_sources = Vec::with_capacity(fields.len());
            for field in &mut fields {
                let found = find_in(file.metadata.schema(), dataset.partitions(), number, field);
                if dataset.merges_schemas() {
                    // The schema of the data set is that of all files.
                    let missing = || ColumnSource::Partition(PartitionValue::Null);
                    file_sources.push(found.map_or_else(missing, |(_, source)| source));
                    continue;
                }
                let (found, source) = found.ok_or_else(|| {
                    let first = first.info.name.clone();
                    Error::from(Problem::ColumnMissing { first })
                        .in_column(field.name())
                        .in_file(&file.info.name)
                })?;
                agree(field, found, &first.info.name)
                    .map_err(|error| error.in_column(field.name()).in_file(&file.info.name))?;
                file_sources.push(source);
            }
            sources.push(file_sources.into());
        }
        Ok(Self {
            schema: Schema::new(fields).into(),
            sources,
        })
    }

    /// The sources of the columns in `file`.
    pub(crate) fn sources(&self, file: u32) -> &[ColumnSource] {
        &self.sources[file as usize]
    }

    /// The selected top-level columns that are stored in `file` itself.
    pub(crate) fn columns(&self, file: u32) -> Vec<usize> {
        let sources = self.sources(file).iter();
        sources
            .filter_map(|source| match source {
                ColumnSource::Column(column) => Some(*column),
                ColumnSource::Partition(_) => None,
            })
            .collect()
    }
}

/// A column of a file, or a partition column.
fn find_in<'a>(
    schema: &'a Schema,
    partitions: &'a PartitionColumns,
    file: usize,
    field: &Field,
) -> Option<(&'a FieldRef, ColumnSource)> {
    if let Some((column, found)) = find(schema, field.name()) {
        return Some((found, ColumnSource::Column(column)));
    }
    let (found, value) = partitions.find(field.name(), file)?;
    Some((found, ColumnSource::Partition(value.clone())))
}

/// Checks that a file has `field` with the same type. A column is nullable if it is nullable in one file.
fn agree(field: &mut FieldRef, found: &Field, first: &str) -> Result<()> {
    // Writers use different names for the elements of a list.
    if !found.data_type().equals_datatype(field.data_type()) {
        return Err(Problem::TypeDiffers {
            expected: field.data_type().clone(),
            found: found.data_type().clone(),
            first: first.to_owned(),
        }
        .into());
    }
    if found.is_nullable() && !field.is_nullable() {
        *field = Field::clone(field).with_nullable(true).into();
    }
    Ok(())
}

fn find<'a>(schema: &'a Schema, name: &str) -> Option<(usize, &'a FieldRef)> {
    schema.fields().find(name)
}

fn unknown(schema: &Schema, names: &[String]) -> Error {
    let known: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    let problem = Problem::NoSuchColumn {
        known: known.join(", "),
    };
    let missing = names.iter().find(|name| find(schema, name).is_none());
    Error::from(problem).in_column(missing.map_or("", String::as_str))
}

//! Which columns are read, and whether the files agree in them.

use arrow_schema::{Field, FieldRef, Schema, SchemaRef};

use super::{Constant, Dataset, partition::Partitions};
use crate::error::{Error, Problem, Result};

/// The columns to read, by name and by their place in each file.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Name, type and nullability of each column, in the order in which the caller named them.
    pub(crate) schema: SchemaRef,
    /// For each file, for each column of the schema: where its values are.
    sources: Vec<Box<[Source]>>,
}

/// Where the values of a column are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In the file: its number among the top-level columns.
    Column(usize),
    /// In the name of its directory.
    Name(Constant),
}

impl Selection {
    /// Selects `names`, or all columns of the first file.
    ///
    /// # Errors
    /// A name that no column has; a file that lacks a column or has it with another type. A column may be
    /// nullable in some files only.
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
            let mut of_file = Vec::with_capacity(fields.len());
            for field in &mut fields {
                let found = find_in(file.metadata.schema(), dataset.partitions(), number, field);
                let (found, source) = found.ok_or_else(|| {
                    let first = first.info.name.clone();
                    Error::from(Problem::ColumnMissing { first })
                        .in_column(field.name())
                        .in_file(&file.info.name)
                })?;
                agree(field, found, &first.info.name)
                    .map_err(|error| error.in_column(field.name()).in_file(&file.info.name))?;
                of_file.push(source);
            }
            sources.push(of_file.into());
        }
        Ok(Self {
            schema: Schema::new(fields).into(),
            sources,
        })
    }

    /// Where the columns are in `file`.
    pub(crate) fn sources(&self, file: u32) -> &[Source] {
        &self.sources[file as usize]
    }

    /// The numbers of those columns that are in `file` itself, among its top-level columns.
    pub(crate) fn columns(&self, file: u32) -> Vec<usize> {
        let sources = self.sources(file).iter();
        sources
            .filter_map(|source| match source {
                Source::Column(column) => Some(*column),
                Source::Name(_) => None,
            })
            .collect()
    }
}

/// A column of a file, or what its name says.
fn find_in<'a>(
    schema: &'a Schema,
    partitions: &'a Partitions,
    file: usize,
    field: &Field,
) -> Option<(&'a FieldRef, Source)> {
    if let Some((column, found)) = find(schema, field.name()) {
        return Some((found, Source::Column(column)));
    }
    let (found, value) = partitions.find(field.name(), file)?;
    Some((found, Source::Name(value.clone())))
}

/// Whether a file has `field` as others do. Nullable in one file is nullable for all.
fn agree(field: &mut FieldRef, found: &Field, first: &str) -> Result<()> {
    // Writers name the elements of a list differently.
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

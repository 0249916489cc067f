//! Which columns are read, and whether the files agree in them.

use arrow_schema::{Field, FieldRef, Schema, SchemaRef};

use super::Dataset;
use crate::error::{Error, Problem, Result};

/// The columns to read, by name and by their place in each file.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Name, type and nullability of each column, in the order in which the caller named them.
    pub(crate) schema: SchemaRef,
    /// For each file, for each column of the schema: its number among the file's top-level columns.
    places: Vec<Box<[usize]>>,
}

impl Selection {
    /// Selects `names`, or all columns of the first file.
    ///
    /// # Errors
    /// A name that no column has; a file that lacks a column or has it with another type. A column may be
    /// nullable in some files only.
    pub(crate) fn new(dataset: &Dataset, names: Option<&[String]>) -> Result<Self> {
        let Some(first) = dataset.files().first() else {
            return Ok(Self {
                schema: Schema::empty().into(),
                places: Vec::new(),
            });
        };
        let first_schema = first.metadata.schema();
        let mut fields: Vec<FieldRef> = match names {
            None => first_schema.fields().iter().cloned().collect(),
            Some(names) => names
                .iter()
                .map(|name| find(first_schema, name).map(|(_, field)| field.clone()))
                .collect::<Option<_>>()
                .ok_or_else(|| unknown(first_schema, names))?,
        };
        let mut places = Vec::with_capacity(dataset.files().len());
        for file in dataset.files() {
            let mut of_file = Vec::with_capacity(fields.len());
            for field in &mut fields {
                let place = agree(field, file.metadata.schema(), &first.info.name)
                    .map_err(|error| error.in_column(field.name()).in_file(&file.info.name))?;
                of_file.push(place);
            }
            places.push(of_file.into());
        }
        Ok(Self {
            schema: Schema::new(fields).into(),
            places,
        })
    }

    /// The numbers of the columns among the top-level columns of `file`.
    pub(crate) fn places(&self, file: u32) -> &[usize] {
        &self.places[file as usize]
    }
}

/// The place of `field` in the schema of another file. Nullable in one file is nullable for all.
fn agree(field: &mut FieldRef, schema: &Schema, first: &str) -> Result<usize> {
    let first = first.to_owned();
    let Some((place, found)) = find(schema, field.name()) else {
        return Err(Problem::ColumnMissing { first }.into());
    };
    // Writers name the elements of a list differently.
    if !found.data_type().equals_datatype(field.data_type()) {
        return Err(Problem::TypeDiffers {
            expected: field.data_type().clone(),
            found: found.data_type().clone(),
            first,
        }
        .into());
    }
    if found.is_nullable() && !field.is_nullable() {
        *field = Field::clone(field).with_nullable(true).into();
    }
    Ok(place)
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

//! What a condition compares: a column, or a field of a structure.
//!
//! A name is that of a column, if there is one. Otherwise dots separate the names of a column and of its fields: `place.city`.

use arrow_array::{Array, ArrayRef, cast::AsArray, make_array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Fields, Schema};

/// The place of the values that a condition compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// The name of the column.
    pub(crate) root: String,
    /// The names of the fields, from the outermost structure on. None for a column.
    pub(crate) fields: Vec<String>,
}

impl Operand {
    /// Finds the values of a name. `None` if there are none.
    pub(crate) fn find(schema: &Schema, name: &str) -> Option<Self> {
        let mut path = path(schema.fields(), name)?;
        path.reverse();
        let (root, fields) = path.split_first()?;
        Some(Self {
            root: root.clone(),
            fields: fields.to_vec(),
        })
    }

    /// Whether this is the path of the values: the names of the column and of the fields.
    pub(crate) fn is_at(&self, path: &[String]) -> bool {
        path.split_first()
            .is_some_and(|(root, fields)| *root == self.root && fields == self.fields)
    }

    /// The values, from those of the column. A value is null if a structure around it is.
    pub(crate) fn values(&self, column: &ArrayRef) -> Option<ArrayRef> {
        let mut values = column.clone();
        for name in &self.fields {
            let structure = values.as_struct_opt()?;
            let field = structure.column_by_name(name)?.to_data();
            let nulls = NullBuffer::union(structure.nulls(), field.nulls());
            let field = field.into_builder().nulls(nulls).build().ok()?;
            values = make_array(field);
        }
        Some(values)
    }

    /// The type of the values, from that of the column.
    pub(crate) fn data_type<'a>(&self, column: &'a DataType) -> Option<&'a DataType> {
        let mut data_type = column;
        for name in &self.fields {
            let DataType::Struct(fields) = data_type else {
                return None;
            };
            data_type = fields.find(name)?.1.data_type();
        }
        Some(data_type)
    }
}

/// The names of a column and of its fields, innermost first.
fn path(fields: &Fields, name: &str) -> Option<Vec<String>> {
    if fields.find(name).is_some() {
        return Some(vec![name.to_owned()]);
    }
    fields.iter().find_map(|field| {
        let DataType::Struct(inner) = field.data_type() else {
            return None;
        };
        let rest = name
            .strip_prefix(field.name().as_str())?
            .strip_prefix('.')?;
        let mut path = path(inner, rest)?;
        path.push(field.name().clone());
        Some(path)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, StructArray};
    use arrow_schema::Field;

    use super::*;

    fn operand(name: &str) -> Option<(String, String)> {
        let number = Field::new("x", DataType::Int64, true);
        let inner = Field::new("a.b", DataType::Struct(vec![number.clone()].into()), true);
        let structure = DataType::Struct(vec![number.clone(), inner].into());
        let schema = Schema::new(vec![
            Field::new("place", structure.clone(), true),
            number,
            Field::new("dotted.place", structure.clone(), true),
            Field::new("dotted", structure, true),
            Field::new("place.y", DataType::Int64, true),
        ]);
        let operand = Operand::find(&schema, name)?;
        Some((operand.root, operand.fields.join("/")))
    }

    #[test]
    fn names_are_columns_or_paths() {
        let found = |root: &str, fields: &str| Some((root.to_owned(), fields.to_owned()));
        assert_eq!(operand("x"), found("x", ""));
        assert_eq!(operand("place"), found("place", ""));
        assert_eq!(operand("place.x"), found("place", "x"));
        assert_eq!(operand("place.a.b.x"), found("place", "a.b/x"));
        assert_eq!(operand("place.y"), found("place.y", ""), "a column");
        assert_eq!(operand("dotted.place.x"), found("dotted.place", "x"));
        assert_eq!(operand("dotted.x"), found("dotted", "x"));
        for unknown in ["place.", "place.z", "x.x", "y", "", ".x"] {
            assert_eq!(operand(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_field_of_a_missing_structure_is_null() {
        let numbers = Int64Array::from(vec![Some(1), None, Some(3)]);
        let field = Arc::new(Field::new("x", DataType::Int64, true));
        let valid = NullBuffer::from(vec![true, true, false]);
        let column = StructArray::new(vec![field].into(), vec![Arc::new(numbers)], Some(valid));
        let operand = Operand {
            root: "place".to_owned(),
            fields: vec!["x".to_owned()],
        };
        let column: ArrayRef = Arc::new(column);
        let values = operand.values(&column).unwrap();
        let expected: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, None]));
        assert_eq!(&values, &expected);
        assert_eq!(
            operand.data_type(column.data_type()),
            Some(&DataType::Int64)
        );
        assert!(operand.values(&values).is_none(), "no structure");
    }
}

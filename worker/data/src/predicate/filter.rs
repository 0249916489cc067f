//! A predicate over the columns of one data set.

use std::collections::BTreeMap;

use arrow_array::{ArrayRef, new_empty_array};
use arrow_buffer::BooleanBuffer;

use super::{Predicate, evaluate::evaluate, operand::Operand};
use crate::{
    dataset::{Dataset, Selection},
    error::Result,
};

/// A predicate and the columns that it needs.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) predicate: Predicate,
    /// The whole columns, also where a condition is on a field of one.
    pub(crate) selection: Selection,
    /// What the names of the predicate mean.
    operands: BTreeMap<String, Operand>,
}

impl Filter {
    /// # Errors
    /// If a column does not exist, differs between files, or cannot be compared with its value.
    pub(crate) fn new(dataset: &Dataset, predicate: Predicate) -> Result<Self> {
        let mut operands = BTreeMap::new();
        let mut names: Vec<String> = Vec::new();
        for name in predicate.columns() {
            let found = dataset
                .schema()
                .and_then(|schema| Operand::find(schema, name));
            // The selection says that a column does not exist.
            let root = found
                .as_ref()
                .map_or(name, |operand| &operand.root)
                .to_owned();
            if !names.contains(&root) {
                names.push(root);
            }
            operands.extend(found.map(|operand| (name.to_owned(), operand)));
        }
        let filter = Self {
            predicate,
            selection: Selection::new(dataset, Some(&names))?,
            operands,
        };
        if !dataset.files().is_empty() {
            let schema = &filter.selection.schema;
            filter.evaluate(0, &|column| {
                new_empty_array(schema.field(column).data_type())
            })?;
        }
        Ok(filter)
    }

    /// What a name of the predicate means, and the number of the column in the selection.
    pub(super) fn operand(&self, name: &str) -> Option<(&Operand, usize)> {
        let operand = self.operands.get(name)?;
        let (column, _) = self.selection.schema.column_with_name(&operand.root)?;
        Some((operand, column))
    }

    /// The condition's name of what is at this path in the schema of a file, if a condition is on it.
    pub(crate) fn at(&self, path: &[String]) -> Option<(&str, &Operand)> {
        let mut operands = self.operands.iter();
        let (name, operand) = operands.find(|(_, operand)| operand.is_at(path))?;
        Some((name, operand))
    }

    /// The rows that are kept. `column` returns a column of the selection.
    ///
    /// # Errors
    /// If a column cannot be compared with its value.
    pub(crate) fn evaluate(
        &self,
        rows: usize,
        column: &dyn Fn(usize) -> ArrayRef,
    ) -> Result<BooleanBuffer> {
        evaluate(&self.predicate, rows, &|name: &str| {
            let (operand, number) = self.operand(name)?;
            operand.values(&column(number))
        })
    }
}

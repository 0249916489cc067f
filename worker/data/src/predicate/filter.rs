//! A predicate over the columns of one data set.

use arrow_array::new_empty_array;

use super::{Predicate, evaluate::evaluate};
use crate::{
    dataset::{Dataset, Selection},
    error::Result,
};

/// A predicate and the columns that it needs.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) predicate: Predicate,
    pub(crate) selection: Selection,
}

impl Filter {
    /// # Errors
    /// If a column does not exist, differs between files, or cannot be compared with its value.
    pub(crate) fn new(dataset: &Dataset, predicate: Predicate) -> Result<Self> {
        let names: Vec<String> = predicate.columns().into_iter().map(str::to_owned).collect();
        let selection = Selection::new(dataset, Some(&names))?;
        if !dataset.files().is_empty() {
            let empty = |name: &str| {
                let field = selection.schema.field_with_name(name).ok()?;
                Some(new_empty_array(field.data_type()))
            };
            evaluate(&predicate, 0, &empty)?;
        }
        Ok(Self {
            predicate,
            selection,
        })
    }
}

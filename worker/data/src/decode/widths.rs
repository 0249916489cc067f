//! The widths of columns, for batches without rows.

use arrow_schema::DataType;

use super::Decoder;
use crate::{RowGroup, caught_panic, dataset::Selection, error::Result};

/// Row groups that are tried, if some cannot be read.
const TRIES: usize = 3;

impl Decoder {
    /// The width of each column of a batch, by the first row group with rows; see [`Column`](crate::Column). `None` for
    /// columns without a width, and if no row group can be read.
    ///
    /// The first call decodes the lists and the byte strings of that row group. Blocks.
    pub(crate) fn widths(&self) -> &[Option<usize>] {
        self.widths.get_or_init(|| {
            let known = self.probe().unwrap_or_default();
            let width = |name: &str| known.iter().find(|(known, _)| known == name)?.1;
            let fields = self.selection.schema.fields();
            match &self.ngram {
                Some(plan) => (plan.columns.iter())
                    .map(|(_, number)| width(fields[*number].name()))
                    .collect(),
                None => fields.iter().map(|field| width(field.name())).collect(),
            }
        })
    }

    /// The widths of the lists and byte strings, by name.
    fn probe(&self) -> Option<Vec<(String, Option<usize>)>> {
        let names: Vec<String> = (self.selection.schema.fields().iter())
            .filter(|field| has_width(field.data_type()))
            .map(|field| field.name().clone())
            .collect();
        if names.is_empty() {
            return None;
        }
        let selection = Selection::new(&self.dataset, Some(&names)).ok()?;
        let groups = (0..).zip(self.dataset.groups());
        let mut groups: Vec<(u32, &RowGroup)> =
            groups.filter(|(_, known)| known.rows > 0).collect();
        // A file may lack columns.
        groups.sort_by_key(|(_, known)| names.len() - selection.columns(known.file).len());
        let mut tried = groups.into_iter().take(TRIES).map(|(group, _)| {
            caught_panic::catch(|| self.widths_in(&selection, group))
                .ok()
                .and_then(Result::ok)
        });
        tried.find_map(|widths| widths)
    }

    fn widths_in(&self, selection: &Selection, group: u32) -> Result<Vec<(String, Option<usize>)>> {
        self.check_claims(selection, group)?;
        let columns = self.columns(selection, group)?;
        let fields = selection.schema.fields().iter();
        let widths = fields.zip(columns).map(|(field, column)| {
            let width = column.width(field.data_type());
            (field.name().clone(), width)
        });
        Ok(widths.collect())
    }
}

/// Whether rows of this type may have a width that the type does not say.
fn has_width(data_type: &DataType) -> bool {
    use DataType::{Binary, LargeBinary, LargeList, List};
    matches!(data_type, List(_) | LargeList(_) | Binary | LargeBinary)
}

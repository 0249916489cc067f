//! The columns whose rows are no tensors, so that the fast path is not tried in each row group.
//!
//! The attempt costs a page that is read and decompressed twice. Row groups of a column are usually alike, so one ragged
//! row group decides for the column, for the life of the decoder. In other row groups Arrow's reader gives the same
//! values, only slower.

use std::{
    collections::BTreeSet,
    sync::{PoisonError, RwLock},
};

/// Names of columns. Shared by the threads that decode.
#[derive(Debug, Default)]
pub(super) struct RaggedColumns(RwLock<BTreeSet<String>>);

impl RaggedColumns {
    pub(super) fn contains(&self, name: &str) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.contains(name)
    }

    pub(super) fn insert(&self, name: &str) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.to_owned());
    }
}

//! How a column is decoded, as far as its row groups have shown, so that each byte is read once.
//!
//! Row groups of a column are usually alike. A column whose pages were decoded here is read from its file page by page. If
//! the pages of one row group were refused, Arrow's reader gets the column for the life of the decoder: it gives the same
//! values. Before the first row group has shown that, the whole chunk is read into memory, where both can decode it.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

/// How the row groups of a column were decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Page by page, here.
    Pages,
    /// With Arrow's reader.
    Arrow,
}

/// The paths of columns by name. Shared by the threads that decode.
#[derive(Debug, Default)]
pub(super) struct ColumnPaths(RwLock<BTreeMap<String, Path>>);

impl ColumnPaths {
    /// The path of a column; `None` as long as no row group has shown it.
    pub(super) fn get(&self, name: &str) -> Option<Path> {
        let paths = self.0.read().unwrap_or_else(PoisonError::into_inner);
        paths.get(name).copied()
    }

    /// A row group took this path.
    pub(super) fn note(&self, name: &str, path: Path) {
        if matches!(self.get(name), Some(known) if known == path || known == Path::Arrow) {
            return;
        }
        let mut paths = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = paths.entry(name.to_owned()).or_insert(path);
        if path == Path::Arrow {
            *known = path;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refused_row_group_decides() {
        let paths = ColumnPaths::default();
        assert_eq!(paths.get("x"), None);
        paths.note("x", Path::Pages);
        assert_eq!(paths.get("x"), Some(Path::Pages));
        paths.note("x", Path::Arrow);
        paths.note("x", Path::Pages);
        assert_eq!(paths.get("x"), Some(Path::Arrow));
        assert_eq!(paths.get("y"), None);
    }
}

//! Selects the storage for paths and addresses.

use std::sync::Arc;

#[cfg(feature = "object-store")]
use super::object::ObjectStorage;
use super::{Storage, local::LocalStorage};
use crate::error::{Error, Problem, Result};

/// Opens paths, or addresses of one kind.
///
/// # Errors
/// If an address has an unknown kind, or another kind than the first.
pub(crate) fn open(roots: &[String]) -> Result<Arc<dyn Storage>> {
    let first = roots.first().map_or("file", |root| kind(root));
    let bad = |why: String, root: &str| Err(Error::from(Problem::BadOption(why)).in_file(root));
    if let Some(other) = roots.iter().find(|root| kind(root) != first) {
        let why = format!(
            "the places of a data set are of one kind: {first} here, {} there",
            kind(other)
        );
        return bad(why, other);
    }
    match first {
        "file" => {
            let paths = roots
                .iter()
                .map(|root| root.strip_prefix("file://").unwrap_or(root).into());
            Ok(Arc::new(LocalStorage::new(paths.collect())))
        }
        #[cfg(feature = "object-store")]
        "s3" | "s3a" | "gs" => Ok(Arc::new(ObjectStorage::new(roots)?)),
        other => bad(
            format!("{other} is no storage that can be read; known are paths, file, s3, gs"),
            &roots[0],
        ),
    }
}

/// The scheme of an address; `file` for paths.
fn kind(root: &str) -> &str {
    root.find("://").map_or("file", |end| &root[..end])
}

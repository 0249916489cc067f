//! Selects the storage for paths and addresses.

use std::sync::Arc;

#[cfg(feature = "object-store")]
use super::object::ObjectStorage;
use super::{Storage, StorageOptions, local::LocalStorage};
use crate::error::{Error, Problem, Result};

/// Opens paths, or addresses of one kind, with options of its object store.
///
/// # Errors
/// If an address has an unknown kind, or another kind than the first, or if there is no such option.
pub(crate) fn open(roots: &[String], options: &StorageOptions) -> Result<Arc<dyn Storage>> {
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
        "file" if !options.is_empty() => bad(
            "storage options are for object stores, not for paths".to_owned(),
            roots.first().map_or("", String::as_str),
        ),
        "file" => {
            let paths = roots
                .iter()
                .map(|root| root.strip_prefix("file://").unwrap_or(root).into());
            Ok(Arc::new(LocalStorage::new(paths.collect())))
        }
        #[cfg(feature = "object-store")]
        "s3" | "s3a" | "gs" | "az" | "azure" | "abfs" | "abfss" | "hf" | "https" | "http" => {
            Ok(Arc::new(ObjectStorage::new(roots, options.clone())?))
        }
        other => bad(
            format!(
                "{other} is no storage that can be read; known are paths, file, s3, gs, az, abfs, hf, https"
            ),
            &roots[0],
        ),
    }
}

/// The scheme of an address; `file` for paths.
fn kind(root: &str) -> &str {
    root.find("://").map_or("file", |end| &root[..end])
}

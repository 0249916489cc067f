//! Which storage serves an address.

use std::sync::Arc;

#[cfg(feature = "object-store")]
use super::object::Objects;
use super::{Storage, local::Local};
use crate::error::{Error, Problem, Result};

/// The storage of some places: paths, or addresses of one kind.
///
/// # Errors
/// An address of an unknown kind, or of another kind than the first.
pub(crate) fn open(places: &[String]) -> Result<Arc<dyn Storage>> {
    let first = places.first().map_or("file", |place| kind(place));
    let bad = |why: String, place: &str| Err(Error::from(Problem::BadOption(why)).in_file(place));
    if let Some(other) = places.iter().find(|place| kind(place) != first) {
        let why = format!(
            "the places of a data set are of one kind: {first} here, {} there",
            kind(other)
        );
        return bad(why, other);
    }
    match first {
        "file" => {
            let paths = places
                .iter()
                .map(|place| place.strip_prefix("file://").unwrap_or(place).into());
            Ok(Arc::new(Local::new(paths.collect())))
        }
        #[cfg(feature = "object-store")]
        "s3" | "s3a" | "gs" => Ok(Arc::new(Objects::new(places)?)),
        other => bad(
            format!("{other} is no storage that can be read; known are paths, file, s3, gs"),
            &places[0],
        ),
    }
}

/// The part before `://`; paths have none.
fn kind(place: &str) -> &str {
    place.find("://").map_or("file", |end| &place[..end])
}

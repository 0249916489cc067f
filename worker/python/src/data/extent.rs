//! Which row groups and which windows of a data set are read, and what its writer noted.

use std::collections::HashSet;

use elasticrun_data::{Dataset, Windows as Chosen};
use pyo3::{prelude::*, types::PyList};

use super::{condition, of};

/// Rows of a window, timestamp, largest difference, whether they may overlap, and the columns by row.
pub(super) type Windows = (u32, String, f64, bool, Vec<(u32, String)>);

pub(super) fn windows(given: Windows) -> Chosen {
    let (length, timestamp, delta, overlap, columns) = given;
    Chosen {
        length,
        timestamp,
        delta,
        overlap,
        columns,
    }
}

/// The data set with some of its row groups: those that conditions leave by their statistics, or those whose numbers a
/// function gives, which is called with (number, file, number in the file, rows, bytes) of all.
pub(super) fn select(
    py: Python<'_>,
    dataset: Dataset,
    given: &Bound<'_, PyAny>,
) -> PyResult<Dataset> {
    if given.is_instance_of::<PyList>() {
        let predicate = condition::read(given)?;
        let held = dataset
            .may_hold(&predicate)
            .map_err(|error| of(py, &error.into()))?;
        return Ok(dataset.select(|number, _| held[number as usize]));
    }
    let groups: Vec<(usize, &str, u32, u32, u64)> = (dataset.groups().iter().enumerate())
        .map(|(number, group)| {
            let file = dataset.file_name(group.file);
            (number, file, group.index, group.rows, group.bytes)
        })
        .collect();
    let wanted: HashSet<u32> = given.call1((groups,))?.extract()?;
    Ok(dataset.select(|number, _| wanted.contains(&number)))
}

/// A note that a writer left beside the files of a data set, in the footer of a file of that name.
#[pyfunction]
pub(crate) fn note(
    py: Python<'_>,
    paths: Vec<String>,
    name: &str,
    key: &str,
) -> PyResult<Option<Vec<u8>>> {
    py.detach(|| Dataset::note(&paths, name, key))
        .map_err(|error| of(py, &error.into()))
}

/// Names of the columns of a data set, with those of its directories.
#[pyfunction]
pub(crate) fn columns(py: Python<'_>, paths: Vec<String>) -> PyResult<Vec<String>> {
    let dataset = py
        .detach(|| Dataset::open(&paths, None))
        .map_err(|error| of(py, &error.into()))?;
    let fields = dataset.schema().map(|schema| schema.fields());
    Ok((fields.into_iter().flatten())
        .map(|field| field.name().clone())
        .collect())
}

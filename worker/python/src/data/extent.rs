//! Selects row groups and windows of a data set, and reads the metadata of its writer.

use std::collections::{HashMap, HashSet};

use elasticrun_data::{Dataset, DiskCache, NGram, StorageOptions};
use pyo3::{prelude::*, types::PyList};

use super::{condition, to_py_err};

/// Rows of a window, timestamp column, maximum difference, overlap, and the columns by row.
pub(super) type NGramTuple = (u32, String, f64, bool, Vec<(u32, String)>);

/// Options of an object store.
pub(super) type OptionMap = HashMap<String, String>;

fn to_options(given: Option<OptionMap>) -> StorageOptions {
    given.into_iter().flatten().collect()
}

pub(super) fn to_ngram(given: NGramTuple) -> NGram {
    let (length, timestamp, delta, overlap, columns) = given;
    NGram {
        length,
        timestamp,
        delta,
        overlap,
        columns,
    }
}

/// Selects row groups, either by conditions on their statistics or by a function. The function gets a list of (number,
/// file, index in the file, rows, bytes) and returns the numbers to keep.
pub(super) fn select(
    py: Python<'_>,
    dataset: Dataset,
    given: &Bound<'_, PyAny>,
) -> PyResult<Dataset> {
    if given.is_instance_of::<PyList>() {
        let predicate = condition::read(&dataset, given)?;
        let held = dataset
            .may_hold(&predicate)
            .map_err(|error| to_py_err(py, &error.into()))?;
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

/// The metadata of a data set: the value of `key` in the footer of the file `name` beside its files.
#[pyfunction]
#[pyo3(signature = (paths, name, key, storage_options = None))]
pub(crate) fn note(
    py: Python<'_>,
    paths: Vec<String>,
    name: &str,
    key: &str,
    storage_options: Option<OptionMap>,
) -> PyResult<Option<Vec<u8>>> {
    py.detach(|| Dataset::note(&paths, name, key, &to_options(storage_options)))
        .map_err(|error| to_py_err(py, &error.into()))
}

/// Opens a data set, with the columns of all files if schemas are merged.
pub(super) fn open(
    paths: &[String],
    cache: Option<DiskCache>,
    merge_schemas: bool,
    storage_options: Option<OptionMap>,
) -> elasticrun_data::Result<Dataset> {
    let dataset = Dataset::open_with(paths, cache, &to_options(storage_options))?;
    match merge_schemas {
        true => dataset.merge_schemas(),
        false => Ok(dataset),
    }
}

/// Names of the columns of a data set, including partition columns.
#[pyfunction]
#[pyo3(signature = (paths, merge_schemas = false, storage_options = None))]
pub(crate) fn columns(
    py: Python<'_>,
    paths: Vec<String>,
    merge_schemas: bool,
    storage_options: Option<OptionMap>,
) -> PyResult<Vec<String>> {
    let dataset = py
        .detach(|| open(&paths, None, merge_schemas, storage_options))
        .map_err(|error| to_py_err(py, &error.into()))?;
    let fields = dataset.schema().map(|schema| schema.fields());
    Ok((fields.into_iter().flatten())
        .map(|field| field.name().clone())
        .collect())
}

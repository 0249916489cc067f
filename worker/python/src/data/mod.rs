//! Elastic data for Python.

use std::{
    num::NonZeroU32,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use arrow_array::{Array, RecordBatch, StructArray, cast::AsArray, ffi};
use arrow_schema::DataType;
use elasticrun_data::{
    DiskCache, OnError, ReaderOptions,
    elastic::{Elastic, ElasticOptions, Error},
};
use elasticrun_ledger::{ReadOrder, Split};
use pyo3::{
    exceptions::{PyKeyError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyCapsule, PyDict, PyList},
};

mod condition;
mod extent;
mod image;
mod parts;
mod plan_preview;
mod values;

pub(crate) use extent::{columns, note};
pub(crate) use image::{Image, images};
pub(crate) use parts::{Plain, PyParts};
pub(crate) use plan_preview::{PlanPreview, plan};

use crate::error;

/// A data set that this process reads. A lock serializes the calls.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Data {
    elastic: Mutex<Elastic>,
    /// The process that has opened it.
    owner: u32,
}

/// Runs without the GIL.
///
/// A process that is forked from this one has neither the threads that read, nor the position. Another thread of this one
/// may have held the lock at that moment.
fn detached<T: Send>(
    py: Python<'_>,
    data: &Data,
    body: impl FnOnce(&mut Elastic) -> Result<T, Error> + Send,
) -> PyResult<T> {
    if std::process::id() != data.owner {
        return Err(error::exception(
            py,
            "DataError",
            "the data set was opened before this process was forked, and cannot be read here: open it in this process",
        ));
    }
    py.detach(|| body(&mut data.elastic.lock().unwrap_or_else(PoisonError::into_inner)))
        .map_err(|error| to_py_err(py, &error))
}

fn to_py_err(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Disagreement(_) | Error::Restore(_) | Error::Late => "StateError",
        _ => "DataError",
    };
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    error::exception(py, class, text)
}

#[pymethods]
impl Data {
    #[new]
    #[pyo3(signature = (paths, *, columns, batch_size, seed, shuffle_rows, memory, threads, skip_errors, whole_row_groups, weight, audit, condition, cache, stripes, row_groups, windows, merge_schemas, storage_options))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        paths: Vec<String>,
        columns: Option<Vec<String>>,
        batch_size: u32,
        seed: Option<u64>,
        shuffle_rows: usize,
        memory: u64,
        threads: Option<usize>,
        skip_errors: bool,
        whole_row_groups: bool,
        weight: u32,
        audit: Option<PathBuf>,
        condition: Option<Bound<'_, PyAny>>,
        cache: Option<(PathBuf, u64)>,
        stripes: Option<NonZeroU32>,
        row_groups: Option<Bound<'_, PyAny>>,
        windows: Option<extent::NGramTuple>,
        merge_schemas: bool,
        storage_options: Option<extent::OptionMap>,
    ) -> PyResult<Self> {
        let batch = NonZeroU32::new(batch_size)
            .ok_or_else(|| PyValueError::new_err("batch_size must be at least 1"))?;
        let cache = cache.map(|(directory, bytes)| DiskCache { directory, bytes });
        let dataset = py
            .detach(|| extent::open(&paths, cache, merge_schemas, storage_options))
            .map_err(|error| to_py_err(py, &error.into()))?;
        let predicate = condition.map(|condition| condition::read(&dataset, &condition));
        let otherwise = ReaderOptions::default();
        let reader = ReaderOptions {
            columns,
            predicate: predicate.transpose()?,
            ngram: windows.map(extent::to_ngram),
            shuffle_rows,
            shuffle: seed.is_some(),
            seed: seed.unwrap_or(0),
            memory,
            threads: threads.unwrap_or(otherwise.threads),
            on_error: if skip_errors {
                OnError::Skip
            } else {
                OnError::Raise
            },
        };
        let order = match (stripes, whole_row_groups) {
            (Some(stripes), _) => ReadOrder::Deterministic(stripes.get()),
            (None, true) => ReadOrder::Local(Split::Never),
            (None, false) => ReadOrder::Local(Split::Rows),
        };
        let options = ElasticOptions {
            batch,
            weight,
            order,
            reader,
        };
        let dataset = match row_groups {
            None => dataset,
            Some(given) => extent::select(py, dataset, &given)?,
        };
        let opened = py.detach(|| -> Result<Elastic, Error> {
            let mut elastic = Elastic::new(Arc::new(dataset), options)?;
            if let Some(directory) = audit {
                elastic.audit(&directory)?;
            }
            Ok(elastic)
        });
        Ok(Self {
            elastic: Mutex::new(opened.map_err(|error| to_py_err(py, &error))?),
            owner: std::process::id(),
        })
    }

    /// (rows, row groups, files) of the data set.
    fn size(&self, py: Python<'_>) -> PyResult<(u64, usize, usize)> {
        detached(py, self, |data| {
            let dataset = data.dataset();
            Ok((
                dataset.rows(),
                dataset.groups().len(),
                dataset.number_of_files(),
            ))
        })
    }

    /// Names and types of the columns.
    fn schema(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        detached(py, self, |data| {
            let fields = data.schema().fields().iter();
            Ok(fields
                .map(|field| (field.name().clone(), field.data_type().to_string()))
                .collect())
        })
    }

    /// (epoch, rows that all workers had left at the last agreement, rows that this worker has left, steps left).
    fn position(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        detached(py, self, |data| {
            let position = data.position();
            Ok((
                position.ledger().epoch(),
                position.ledger().left(),
                data.left(),
                position.steps(),
            ))
        })
    }

    /// Bytes of rows in memory, and the approximate number of times that a row group is decoded in an epoch.
    fn cost(&self, py: Python<'_>) -> PyResult<(u64, f64)> {
        detached(py, self, |data| Ok((data.memory(), data.passes())))
    }

    /// Rows a second by rank, as of commits; empty before the first commit.
    fn pace(&self, py: Python<'_>) -> PyResult<Vec<f64>> {
        detached(py, self, |data| Ok(data.throughput()))
    }

    /// Bytes of row groups that were read so far.
    fn bytes_read(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, self, |data| Ok(data.bytes_read()))
    }

    /// Identifies the data set as read, as the audit log does.
    fn digest(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, self, |data| Ok(format!("{:016x}", data.digest())))
    }

    /// Pieces and rows that were skipped because they could not be read.
    fn skipped(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        detached(py, self, |data| {
            Ok((data.skipped().pieces, data.skipped().rows))
        })
    }

    /// Ends each epoch with its last complete step. Called before the first round.
    fn drop_last(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, self, Elastic::drop_last)
    }

    fn introduce(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        let bytes = detached(py, self, |data| Ok(data.introduce()))?;
        Ok(PyBytes::new(py, &bytes).unbind())
    }

    /// Enters a round, and returns the number of rows that move to another worker.
    #[pyo3(signature = (rank, hellos, is_counted = true))]
    fn enter(
        &self,
        py: Python<'_>,
        rank: usize,
        hellos: Vec<Vec<u8>>,
        is_counted: bool,
    ) -> PyResult<u64> {
        detached(py, self, |data| {
            data.count_rows(is_counted);
            data.enter_round(rank, &hellos)
        })
    }

    /// Without a job: reads one of `count` shards.
    fn enter_shard(&self, py: Python<'_>, shard: u32, count: u32) -> PyResult<()> {
        detached(py, self, |data| data.enter_shard(shard, count))
    }

    /// Logs in the audit that a round continues from its base.
    fn audit_round(&self, py: Python<'_>) -> PyResult<()> {
        let (round, base) = crate::commits::base(py)?;
        detached(py, self, |data| data.audit_round(round, base.as_deref()))
    }

    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let batch = detached(py, self, Elastic::next_batch)?;
        Ok(batch.map(Batch))
    }

    /// The rows of the step that follows so many others, which do not count as processed. None if the epoch has no such step.
    fn look_ahead(&self, py: Python<'_>, steps: usize) -> PyResult<Option<Batch>> {
        let batch = detached(py, self, |data| Ok(data.look_ahead(steps)?.cloned()))?;
        Ok(batch.map(Batch))
    }

    /// The rows with these numbers, which do not count as processed.
    fn rows_at(&self, py: Python<'_>, numbers: Vec<u64>) -> PyResult<Batch> {
        detached(py, self, |data| data.rows_at(&numbers)).map(Batch)
    }

    /// Ends the epoch, since no worker has a row left for the steps that remain. False if this worker has rows.
    fn skip_empty_steps(&self, py: Python<'_>) -> PyResult<bool> {
        detached(py, self, |data| Ok(data.skip_empty_steps()))
    }

    /// What `look_ahead` returned holds as long as this number stays the same.
    fn assignments(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, self, |data| Ok(data.assignments()))
    }

    fn report(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        let commit = crate::commits::next_commit(py)?;
        let bytes = detached(py, self, |data| data.report(&commit))?;
        Ok(PyBytes::new(py, &bytes).unbind())
    }

    fn agree(&self, py: Python<'_>, reports: Vec<Vec<u8>>) -> PyResult<()> {
        detached(py, self, |data| data.agree_on(&reports))
    }

    /// Without other workers: the rows that were returned count as of a commit.
    fn agree_alone(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, self, Elastic::agree_alone)
    }

    /// Logs in the audit that the commit of the last report is sealed.
    fn committed(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, self, Elastic::commit_made)
    }

    fn next_epoch(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, self, |data| {
            data.next_epoch();
            Ok(())
        })
    }

    /// Whether rows were processed that no commit includes yet.
    fn is_ahead(&self, py: Python<'_>) -> PyResult<bool> {
        detached(py, self, |data| Ok(data.is_ahead()))
    }

    fn save(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        let bytes = detached(py, self, |data| Ok(data.position().save().to_vec()))?;
        Ok(PyBytes::new(py, &bytes).unbind())
    }

    fn restore(&self, py: Python<'_>, bytes: Vec<u8>) -> PyResult<()> {
        detached(py, self, |data| data.restore_position(&bytes))
    }
}

/// The rows of a step as columns.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Batch(elasticrun_data::Batch);

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.0.rows()
    }

    /// Names of the columns.
    fn names(&self) -> Vec<String> {
        self.0
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// A column with NumPy's array interface, if it has numbers or bytes of one size.
    fn column(&self, name: &str) -> PyResult<Option<Column>> {
        let column = self
            .0
            .column(name)
            .ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(Column::from_arrow(column))
    }

    /// A column as a list: strings, bytes, bools or nullable numbers. None for null.
    fn values<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyList>>> {
        let column = self
            .0
            .column(name)
            .ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        values::list(py, &*column.array)
    }

    /// A column as plain memory; None if it has a type without one.
    fn parts(&self, name: &str) -> PyResult<Option<PyParts>> {
        let column = self
            .0
            .column(name)
            .ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(PyParts::of(column))
    }

    /// Rows that were processed for the batch, including rows that a predicate dropped.
    fn processed(&self) -> u64 {
        self.0.rows_processed()
    }

    /// Row group and row within it, for each row.
    fn origins(&self) -> Vec<(u32, u32)> {
        let spans = self.0.spans();
        let origins = self.0.origins().iter();
        origins
            .map(|origin| (spans[origin.span as usize].group, origin.row))
            .collect()
    }

    /// The Arrow C data interface: (schema, array) as capsules, without a copy.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        let bad = |error: arrow_schema::ArrowError| PyTypeError::new_err(error.to_string());
        let columns = self
            .0
            .columns()
            .iter()
            .map(|column| column.array.clone())
            .collect();
        let batch = RecordBatch::try_new(self.0.schema().clone(), columns).map_err(bad)?;
        let (array, schema) = ffi::to_ffi(&StructArray::from(batch).to_data()).map_err(bad)?;
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}

/// A column with NumPy's array interface, of shape (rows) or (rows, width). The memory belongs to the batch.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Column {
    /// Keeps the memory alive.
    _array: Arc<dyn Array>,
    address: usize,
    shape: Vec<usize>,
    kind: &'static str,
}

impl Column {
    fn from_arrow(column: &elasticrun_data::Column) -> Option<Self> {
        let array = &column.array;
        let rows = array.len();
        if array.null_count() > 0 {
            return None;
        }
        let (values, shape): (Arc<dyn Array>, Vec<usize>) = match array.data_type() {
            DataType::FixedSizeList(_, width) => {
                let list = array.as_fixed_size_list();
                let width = *width as usize;
                let first = list.offset() * width;
                (list.values().slice(first, rows * width), vec![rows, width])
            }
            DataType::List(_) => {
                let (list, width) = (array.as_list::<i32>(), column.width?);
                let first = list.value_offsets().first().copied()? as usize;
                (list.values().slice(first, rows * width), vec![rows, width])
            }
            DataType::LargeList(_) => {
                let (list, width) = (array.as_list::<i64>(), column.width?);
                let first = list.value_offsets().first().copied()? as usize;
                (list.values().slice(first, rows * width), vec![rows, width])
            }
            _ => (array.clone(), vec![rows]),
        };
        if values.null_count() > 0 {
            return None;
        }
        let data = values.to_data();
        let bytes = |offset: usize| {
            data.buffers()
                .get(offset)
                .map(|buffer| buffer.as_ptr() as usize)
        };
        let number =
            |kind, size: usize| Some((kind, bytes(0)? + data.offset() * size, shape.clone()));
        let (kind, address, shape) = match values.data_type() {
            DataType::Int8 => number("|i1", 1)?,
            DataType::UInt8 => number("|u1", 1)?,
            DataType::Int16 => number("<i2", 2)?,
            DataType::UInt16 => number("<u2", 2)?,
            DataType::Float16 => number("<f2", 2)?,
            DataType::Int32 | DataType::Date32 => number("<i4", 4)?,
            DataType::UInt32 => number("<u4", 4)?,
            DataType::Float32 => number("<f4", 4)?,
            DataType::Int64
            | DataType::Timestamp(..)
            | DataType::Date64
            | DataType::Duration(_) => number("<i8", 8)?,
            DataType::UInt64 => number("<u8", 8)?,
            DataType::Float64 => number("<f8", 8)?,
            DataType::Binary if shape.len() == 1 => {
                let first = values.as_binary::<i32>().value_offsets().first().copied()?;
                ("|u1", bytes(1)? + first as usize, vec![rows, column.width?])
            }
            DataType::LargeBinary if shape.len() == 1 => {
                let first = values.as_binary::<i64>().value_offsets().first().copied()?;
                ("|u1", bytes(1)? + first as usize, vec![rows, column.width?])
            }
            DataType::FixedSizeBinary(width) if shape.len() == 1 => {
                let width = *width as usize;
                ("|u1", bytes(0)? + data.offset() * width, vec![rows, width])
            }
            _ => return None,
        };
        Some(Self {
            _array: values,
            address,
            shape,
            kind,
        })
    }
}

#[pymethods]
impl Column {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.kind)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }
}

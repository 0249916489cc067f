//! Previews what a change of workers does to an epoch of a data set.

use std::path::PathBuf;

use elasticrun_data::{Dataset, DiskCache};
use elasticrun_ledger::{EpochLayout, Share, Shuffle, Split, WorkerSlot};
use pyo3::{exceptions::PyValueError, prelude::*};

use super::to_py_err;

/// Host, slot and weight of a worker.
type Worker = (String, u32, u32);
/// From worker, to worker, rows.
type Flow = (usize, usize, u64);
/// Ranges of the epoch layout that a worker reads.
type Ranges = Vec<(u64, u64)>;

/// The result of `elasticrun_ledger::preview_plan`, and the size of the data set.
#[pyclass(frozen, get_all, module = "elasticrun._native")]
pub(crate) struct PlanPreview {
    files: usize,
    row_groups: usize,
    rows: u64,
    before: Vec<Ranges>,
    after: Vec<Ranges>,
    flows: Vec<Flow>,
    moved: u64,
    moved_from_scratch: u64,
    split_groups: usize,
}

/// Plans the change from the workers `before` to the workers `after`, when each has processed the fraction `done` of
/// its share.
#[pyfunction]
#[pyo3(signature = (paths, before, after, *, done, seed, epoch, whole_row_groups, cache = None))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn plan(
    py: Python<'_>,
    paths: Vec<String>,
    before: Vec<Worker>,
    after: Vec<Worker>,
    done: f64,
    seed: Option<u64>,
    epoch: u64,
    whole_row_groups: bool,
    cache: Option<(PathBuf, u64)>,
) -> PyResult<PlanPreview> {
    if before.is_empty() || after.is_empty() || !(0.0..=1.0).contains(&done) {
        return Err(PyValueError::new_err(
            "a plan needs workers before and after, and a part that is done between 0 and 1",
        ));
    }
    let split = match whole_row_groups {
        true => Split::Never,
        false => Split::Rows,
    };
    let cache = cache.map(|(directory, bytes)| DiskCache { directory, bytes });
    py.detach(|| {
        let dataset = Dataset::open(&paths, cache)?;
        let rows: Vec<u32> = dataset.groups().iter().map(|group| group.rows).collect();
        let layout = EpochLayout::new(&rows, seed.map(|seed| Shuffle { seed, epoch }));
        let preview = elasticrun_ledger::preview_plan(
            &layout,
            &worker_slots(before),
            &worker_slots(after),
            done,
            split,
        );
        Ok(PlanPreview {
            files: dataset.number_of_files(),
            row_groups: rows.len(),
            rows: layout.rows(),
            before: preview.before.iter().map(ranges).collect(),
            after: preview.after.iter().map(ranges).collect(),
            flows: (preview.flows.iter().map(|f| (f.from, f.to, f.rows))).collect(),
            moved: preview.moved,
            moved_from_scratch: preview.moved_from_scratch,
            split_groups: preview.split_groups,
        })
    })
    .map_err(|error: elasticrun_data::Error| to_py_err(py, &error.into()))
}

fn worker_slots(workers: Vec<Worker>) -> Vec<WorkerSlot> {
    let slot_of = |(host, slot, weight)| WorkerSlot { host, slot, weight };
    workers.into_iter().map(slot_of).collect()
}

fn ranges(share: &Share) -> Ranges {
    (share.ranges().iter().map(|r| (r.start, r.end))).collect()
}

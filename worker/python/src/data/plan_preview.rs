//! What a change of workers would do to an epoch of a data set.

use std::path::PathBuf;

use elasticrun_data::{Dataset, DiskCache};
use elasticrun_ledger::{Line, Seat, Share, Shuffle, Split};
use pyo3::{exceptions::PyValueError, prelude::*};

use super::of;

/// Host, slot and weight of a worker.
type Worker = (String, u32, u32);
/// From worker, to worker, rows.
type Flow = (usize, usize, u64);
/// Ranges of the line that a worker reads.
type Ranges = Vec<(u64, u64)>;

/// What `elasticrun_ledger::forecast` says, and the size of the data set.
#[pyclass(frozen, get_all, module = "elasticrun._native")]
pub(crate) struct Forecast {
    files: usize,
    row_groups: usize,
    rows: u64,
    before: Vec<Ranges>,
    after: Vec<Ranges>,
    flows: Vec<Flow>,
    moved: u64,
    anew: u64,
    cut: usize,
}

/// Plans the change from the workers `before` to those `after`, each of which has processed `done` of its share.
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
) -> PyResult<Forecast> {
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
        let line = Line::new(&rows, seed.map(|seed| Shuffle { seed, epoch }));
        let told = elasticrun_ledger::forecast(&line, &seats(before), &seats(after), done, split);
        Ok(Forecast {
            files: dataset.number_of_files(),
            row_groups: rows.len(),
            rows: line.rows(),
            before: told.before.iter().map(ranges).collect(),
            after: told.after.iter().map(ranges).collect(),
            flows: (told.flows.iter().map(|f| (f.from, f.to, f.rows))).collect(),
            moved: told.moved,
            anew: told.anew,
            cut: told.cut,
        })
    })
    .map_err(|error: elasticrun_data::Error| of(py, &error.into()))
}

fn seats(workers: Vec<Worker>) -> Vec<Seat> {
    let seat = |(host, slot, weight)| Seat { host, slot, weight };
    workers.into_iter().map(seat).collect()
}

fn ranges(share: &Share) -> Ranges {
    (share.ranges().iter().map(|r| (r.start, r.end))).collect()
}

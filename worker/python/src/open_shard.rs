//! Commits of a shard, whose tensors are copied before or while training goes on.

use std::{
    io::{self, Write},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use elasticrun_reshard::Body;
use elasticrun_worker::{BufferPlace, Copying, OpenShard, Part, State, copy_bytes, state};
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    commits::numbers,
    dtype::Memory,
    error,
    process::use_worker,
    shards::{PyLayout, state_error},
};

/// The part of a shard in front of its tensors, as a [`State`] that can only be saved.
struct Front<'a> {
    header: &'a [u8],
    layout: &'a [u8],
    head: &'a [u8],
}

impl State for Front<'_> {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.header)?;
        out.write_all(self.layout)?;
        out.write_all(self.head)
    }

    fn restore(&mut self, _: &mut &[u8]) -> Result<(), state::Error> {
        Err(state::Error::Invalid("it is only saved".to_owned()))
    }
}

/// A commit of a shard that is being written. It counts once it is sealed.
#[pyclass(frozen, name = "OpenShard", module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PyOpenShard {
    open: OpenShard,
    /// The place of each tensor in the bytes of the commit, in the order in which the tensors were given.
    tensors: Vec<Range<usize>>,
    /// Whether it is commit 0 of the round.
    is_first: bool,
    running: Mutex<Option<Running>>,
}

/// A copy in another thread, and the objects whose memory it reads.
#[derive(Debug)]
struct Running {
    copying: Arc<Copying>,
    _sources: Py<PyAny>,
}

/// Begins a commit of a shard of the state, with all but its tensors. The other members must have sealed the commit before,
/// which a barrier shows; with `is_first` it is commit 0 of the round.
///
/// `nbytes` are the bytes of the local tensors.
#[pyfunction]
pub(crate) fn open_shard(
    py: Python<'_>,
    layout: &PyLayout,
    shard: u32,
    head: &Bound<'_, PyBytes>,
    nbytes: Vec<usize>,
    is_first: bool,
) -> PyResult<PyOpenShard> {
    layout.check(py, shard, &nbytes)?;
    let head = head.as_bytes();
    let body =
        Body::new(&layout.layout, shard, head.len()).map_err(|error| state_error(py, error))?;
    let header = body.header();
    let front = Front {
        header: &header,
        layout: layout.layout.as_bytes(),
        head,
    };
    let part = layout.shard(shard);
    let open = use_worker(py, |worker| {
        let opened = py.detach(|| match is_first {
            true => worker.open_first_shard(part, &front, body.len()),
            false => worker.open_shard(part, &front, body.len()),
        });
        opened.map_err(|error| error::from_worker(py, &error))
    })?;
    let tensors = layout
        .order
        .iter()
        .map(|index| body.tensors()[*index as usize].clone());
    let opened = PyOpenShard {
        tensors: tensors.collect(),
        open,
        is_first,
        running: Mutex::new(None),
    };
    opened.clear_gaps(&body);
    Ok(opened)
}

impl PyOpenShard {
    /// Where a range of the commit is in memory.
    fn at(&self, range: &Range<usize>) -> *mut u8 {
        let place = self.open.place();
        debug_assert!(range.end <= place.len);
        std::ptr::with_exposed_provenance_mut(place.address + range.start)
    }

    /// Sets the bytes between tensors, which are those of an older commit.
    fn clear_gaps(&self, body: &Body) {
        let mut pos = body.head().end;
        for range in body.tensors() {
            let gap = pos..range.start;
            // SAFETY: within the commit, which is open and of which no other thread knows yet.
            unsafe { self.at(&gap).write_bytes(0, gap.len()) };
            pos = range.end;
        }
    }

    /// The copies of tensors, by index and memory, to their places.
    fn parts(&self, py: Python<'_>, tensors: Vec<(usize, (usize, usize))>) -> PyResult<Vec<Part>> {
        let part = |(index, buffer): (usize, (usize, usize))| {
            let range = self
                .tensors
                .get(index)
                .filter(|range| range.len() == buffer.1);
            let range = range.ok_or_else(|| {
                state_error(
                    py,
                    format!("tensor {index} of a shard does not have {} bytes", buffer.1),
                )
            })?;
            // SAFETY: Python keeps the memory alive and does not change it until it is copied.
            let from = unsafe { Memory::from_address::<u8>(buffer)?.as_ref::<u8>() }.as_ptr();
            Ok(Part {
                from,
                to: self.at(range),
                len: range.len(),
            })
        };
        tensors.into_iter().map(part).collect()
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copying(&self) -> Option<Arc<Copying>> {
        self.running()
            .as_ref()
            .map(|running| Arc::clone(&running.copying))
    }
}

#[pymethods]
impl PyOpenShard {
    /// Address and bytes of the place of each tensor, in the order in which the tensors were given. They hold any values.
    #[getter]
    fn targets(&self) -> Vec<(usize, usize)> {
        let start = self.open.place().address;
        let tensors = self.tensors.iter();
        tensors
            .map(|range| (start + range.start, range.len()))
            .collect()
    }

    /// The memory that the commit is a part of: which of the process's buffers, address, bytes, and how often its pages have
    /// changed.
    #[getter]
    fn buffer(&self) -> (usize, usize, usize, u64) {
        let BufferPlace {
            index,
            address,
            allocated,
            version,
        } = self.open.place().buffer;
        (index, address, allocated, version)
    }

    /// Copies tensors, by index and memory, to their places.
    fn copy(&self, py: Python<'_>, tensors: Vec<(usize, (usize, usize))>) -> PyResult<()> {
        let parts = self.parts(py, tensors)?;
        struct Parts(Vec<Part>);
        // SAFETY: the memory is as good for the thread that goes on without the GIL, which is this one.
        unsafe impl Send for Parts {}
        let parts = Parts(parts);
        py.detach(move || {
            let Parts(parts) = { parts };
            for Part { from, to, len } in parts {
                // SAFETY: the place is that of the tensor in an open commit, and Python keeps the source as it is.
                unsafe { copy_bytes(from, to, len) };
            }
        });
        Ok(())
    }

    /// As `copy`, in a thread of its own, once for a commit. Until `is_copied`, nobody may write to the tensors, which are the
    /// memory of `sources`.
    fn copy_behind(
        &self,
        py: Python<'_>,
        tensors: Vec<(usize, (usize, usize))>,
        sources: Py<PyAny>,
    ) -> PyResult<()> {
        let parts = self.parts(py, tensors)?;
        // SAFETY: the sources live as long as this value, and the memory of the commit is kept by the worker, which waits for
        // the copy. Tensors do not overlap, and Python does not change them.
        let copying = unsafe { Copying::start(parts) }?;
        *self.running() = Some(Running {
            copying: Arc::clone(&copying),
            _sources: sources,
        });
        use_worker(py, |worker| {
            worker.await_copy(&self.open, copying);
            Ok(())
        })
    }

    /// Whether no copy in another thread is running.
    fn is_copied(&self) -> bool {
        self.copying().is_none_or(|copying| copying.is_done())
    }

    /// Waits until no copy in another thread is running.
    fn wait(&self, py: Python<'_>) {
        if let Some(copying) = self.copying() {
            py.detach(|| copying.wait());
        }
    }

    /// Seals the commit, after the copies. Returns its id (epoch, round, count). With `must_be_whole`, not if an operation of the
    /// round was cut short since it was begun.
    fn seal(&self, py: Python<'_>, must_be_whole: bool) -> PyResult<(u64, u64, u64)> {
        self.wait(py);
        use_worker(py, |worker| {
            let sealed = match self.is_first {
                true => worker.seal_first_shard(&self.open),
                false => py.detach(|| worker.seal_shard(&self.open, must_be_whole)),
            };
            let id = sealed.map_err(|error| error::from_worker(py, &error))?;
            Ok(numbers(id))
        })
    }
}

impl Drop for PyOpenShard {
    fn drop(&mut self) {
        if let Some(copying) = self.copying() {
            // The memory of the sources goes with this value.
            copying.wait();
        }
    }
}

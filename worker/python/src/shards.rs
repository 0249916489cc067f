//! States that are divided among workers: layouts, and commits of a shard.

use std::io::{self, Write};

use elasticrun_reshard::{Axis, Body, Division, Dtype, Layout, Mesh, Tensor};
use elasticrun_worker::{Shard, State, available_memory, state};
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    commits::numbers, divided_base::PyBase, dtype::Memory, error, process::use_worker,
    round::collective_queue,
};

/// A mesh: its shape, and the shard at each of its coordinates in row-major order.
type MeshSpec = (Vec<u32>, Vec<u32>);

/// How a mesh divides a tensor: the index of the mesh, and for each of its dimensions the dimension of the tensor that it
/// cuts, with the split factor of torch's `_StridedShard` or 1.
type DivisionSpec = (u16, Vec<Option<(u8, u32)>>);

/// Name, dtype, bytes of an element, shape. Without a division each shard holds all of it.
type TensorSpec = (String, String, u8, Vec<u64>, Option<DivisionSpec>);

pub(crate) fn state_error(py: Python<'_>, why: impl ToString) -> PyErr {
    error::exception(py, "StateError", why.to_string())
}

/// How a state is divided among workers.
#[pyclass(frozen, name = "Layout", module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PyLayout {
    pub(crate) layout: Layout,
    /// The index in the layout of each tensor that the caller gave.
    pub(crate) order: Vec<u32>,
}

#[pymethods]
impl PyLayout {
    #[new]
    fn new(
        py: Python<'_>,
        shards: u32,
        meshes: Vec<MeshSpec>,
        tensors: Vec<TensorSpec>,
    ) -> PyResult<Self> {
        let meshes = meshes.into_iter();
        let meshes = meshes.map(|(shape, shards)| Mesh { shape, shards });
        let tensors = tensors.into_iter().map(tensor).collect();
        let (layout, order) = Layout::new(shards, meshes.collect(), tensors)
            .map_err(|error| state_error(py, error))?;
        Ok(Self { layout, order })
    }

    /// A hash of the division, never 0.
    #[getter]
    fn hash(&self) -> u64 {
        self.layout.hash()
    }

    /// The number of shards.
    #[getter]
    fn shards(&self) -> u32 {
        self.layout.shards()
    }

    /// The bytes of a shard, without the space between tensors.
    fn nbytes(&self, shard: u32) -> u64 {
        match shard < self.layout.shards() {
            true => self.layout.bytes(shard),
            false => 0,
        }
    }

    /// Name, dtype and shape of the tensors, by name.
    fn tensors(&self) -> Vec<(String, String, Vec<u64>)> {
        let tensors = self.layout.tensors().iter();
        tensors
            .map(|tensor| {
                let dtype = tensor.dtype.name.clone();
                (tensor.name.clone(), dtype, tensor.shape.clone())
            })
            .collect()
    }
}

fn tensor((name, dtype, itemsize, shape, division): TensorSpec) -> Tensor {
    let axis = |axis: Option<(u8, u32)>| match axis {
        None => Axis::Replicate,
        Some((dim, 1)) => Axis::Shard { dim },
        Some((dim, factor)) => Axis::Strided { dim, factor },
    };
    Tensor {
        name,
        dtype: Dtype::new(dtype, itemsize),
        shape,
        division: match division {
            None => Division::Whole,
            Some((mesh, axes)) => Division::Mesh {
                mesh,
                axes: axes.into_iter().map(axis).collect(),
            },
        },
    }
}

impl PyLayout {
    fn shard(&self, index: u32) -> Shard {
        Shard {
            layout: self.layout.hash(),
            index,
            of: self.layout.shards(),
        }
    }

    /// The memory of the local tensors of a shard, in the order of the layout. `buffers` are in the order in which the
    /// tensors were given.
    pub(crate) fn local(
        &self,
        py: Python<'_>,
        shard: u32,
        buffers: Vec<(usize, usize)>,
    ) -> PyResult<Vec<Memory>> {
        if buffers.len() != self.order.len() || shard >= self.layout.shards() {
            let (given, tensors) = (buffers.len(), self.order.len());
            let shards = self.layout.shards();
            return Err(state_error(
                py,
                format!("{given} buffers for {tensors} tensors, shard {shard} of {shards}"),
            ));
        }
        let mut memory = vec![Memory::EMPTY; buffers.len()];
        for (buffer, index) in buffers.into_iter().zip(&self.order) {
            let (expected, given) = (self.layout.local_bytes(*index, shard), buffer.1);
            if given as u64 != expected {
                let name = &self.layout.tensors()[*index as usize].name;
                return Err(state_error(
                    py,
                    format!(
                        "{name} has {given} bytes in shard {shard}, and must have {expected} by its placements"
                    ),
                ));
            }
            memory[*index as usize] = Memory::from_address::<u8>(buffer)?;
        }
        Ok(memory)
    }
}

/// A shard as a [`State`] that can only be saved. Python keeps the memory alive meanwhile.
struct SavedShard<'a> {
    layout: &'a Layout,
    body: Body,
    head: &'a [u8],
    tensors: Vec<Memory>,
}

impl State for SavedShard<'_> {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.body.header())?;
        out.write_all(self.layout.as_bytes())?;
        out.write_all(self.head)?;
        let mut pos = self.body.head().end;
        for (range, memory) in self.body.tensors().iter().zip(&self.tensors) {
            out.write_all(&[0; Body::ALIGN][..range.start - pos])?;
            // SAFETY: Python keeps the memory alive and does not change it during the call.
            out.write_all(unsafe { memory.as_ref::<u8>() })?;
            pos = range.end;
        }
        Ok(())
    }

    fn restore(&mut self, _: &mut &[u8]) -> Result<(), state::Error> {
        Err(state::Error::Invalid("it is only saved".to_owned()))
    }
}

impl<'a> SavedShard<'a> {
    fn new(
        py: Python<'_>,
        layout: &'a PyLayout,
        shard: u32,
        head: &'a [u8],
        buffers: Vec<(usize, usize)>,
    ) -> PyResult<Self> {
        let tensors = layout.local(py, shard, buffers)?;
        let body = Body::new(&layout.layout, shard, head.len());
        Ok(Self {
            layout: &layout.layout,
            body: body.map_err(|error| state_error(py, error))?,
            head,
            tensors,
        })
    }
}

/// Commits a shard of the state: copies its tensors (address, bytes) into memory of the agent. All members must have sealed
/// the commit before, which a barrier shows. Returns the id (epoch, round, count).
#[pyfunction]
pub(crate) fn commit_shard(
    py: Python<'_>,
    layout: &PyLayout,
    shard: u32,
    head: &Bound<'_, PyBytes>,
    buffers: Vec<(usize, usize)>,
) -> PyResult<(u64, u64, u64)> {
    let saved = SavedShard::new(py, layout, shard, head.as_bytes(), buffers)?;
    let part = layout.shard(shard);
    use_worker(py, |worker| {
        let sealed = py.detach(|| worker.seal_shard(part, &saved));
        let id = sealed.map_err(|error| error::from_worker(py, &error))?;
        Ok(numbers(id))
    })
}

/// As `commit_shard`, for commit 0 of the round, which `seal_first()` seals. It may be written again before.
#[pyfunction]
pub(crate) fn write_first(
    py: Python<'_>,
    layout: &PyLayout,
    shard: u32,
    head: &Bound<'_, PyBytes>,
    buffers: Vec<(usize, usize)>,
) -> PyResult<()> {
    let saved = SavedShard::new(py, layout, shard, head.as_bytes(), buffers)?;
    let part = layout.shard(shard);
    use_worker(py, |worker| {
        let written = py.detach(|| worker.write_first_shard(part, &saved));
        written.map_err(|error| error::from_worker(py, &error))
    })
}

/// Seals commit 0 of the round, as it was written last. Returns the id.
#[pyfunction]
pub(crate) fn seal_first(
    py: Python<'_>,
    layout: &PyLayout,
    shard: u32,
) -> PyResult<(u64, u64, u64)> {
    let part = layout.shard(shard);
    use_worker(py, |worker| {
        let sealed = worker.seal_first_shard(part);
        let id = sealed.map_err(|error| error::from_worker(py, &error))?;
        Ok(numbers(id))
    })
}

/// The bytes of memory that two commits of a shard need beyond what this process has for commits, and those that the system
/// still has. None if it does not say.
#[pyfunction]
pub(crate) fn memory_for_commits(
    py: Python<'_>,
    layout: &PyLayout,
    shard: u32,
    head: usize,
) -> PyResult<(u64, Option<u64>)> {
    let body = Body::new(&layout.layout, shard, head).map_err(|error| state_error(py, error))?;
    let growth = use_worker(py, |worker| Ok(worker.growth_of_commits(body.len())))?;
    Ok((growth, available_memory()))
}

/// Provides memory for the next commit of this process, of about so many bytes, while it does other things.
#[pyfunction]
pub(crate) fn provide_for_commit(py: Python<'_>, nbytes: usize) -> PyResult<()> {
    use_worker(py, |worker| {
        worker.provide_for_commit(nbytes);
        Ok(())
    })
}

/// Notes that all members have sealed their shards as commit 0 of the round.
#[pyfunction]
pub(crate) fn all_sealed(py: Python<'_>) -> PyResult<()> {
    use_worker(py, |worker| {
        worker.all_sealed();
        Ok(())
    })
}

/// Notes that the live state was made of the base of the round.
#[pyfunction]
pub(crate) fn loaded_shards(py: Python<'_>) -> PyResult<()> {
    use_worker(py, |worker| {
        worker.loaded_shards();
        Ok(())
    })
}

/// Opens the base of the round, which is divided among workers. None if the round has no base. All members call it.
#[pyfunction]
pub(crate) fn load_shards(py: Python<'_>) -> PyResult<Option<PyBase>> {
    let queue = collective_queue(py)?;
    use_worker(py, |worker| {
        let opened = queue
            .get()
            .borrow(py, |group| worker.load_shards(group))?
            .ok_or_else(|| error::exception(py, "WorkersFailed", "the round is over"))?;
        let base = opened.map_err(|error| error::from_worker(py, &error))?;
        base.map(|base| PyBase::open(py, worker, base)).transpose()
    })
}

//! States that are divided among workers: layouts, and the start of a round. [`crate::open_shard`] has their commits.

use elasticrun_reshard::{Axis, Body, Division, Dtype, Layout, Mesh, Tensor};
use elasticrun_worker::{Shard, available_memory};
use pyo3::prelude::*;

use crate::{
    divided_base::PyBase, dtype::Memory, error, process::use_worker, round::collective_queue,
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
    pub(crate) fn shard(&self, index: u32) -> Shard {
        Shard {
            layout: self.layout.hash(),
            index,
            of: self.layout.shards(),
        }
    }

    /// Checks the number of bytes of each local tensor of a shard, in the order in which the tensors were given.
    pub(crate) fn check(&self, py: Python<'_>, shard: u32, nbytes: &[usize]) -> PyResult<()> {
        if nbytes.len() != self.order.len() || shard >= self.layout.shards() {
            let (given, tensors) = (nbytes.len(), self.order.len());
            let shards = self.layout.shards();
            return Err(state_error(
                py,
                format!("{given} buffers for {tensors} tensors, shard {shard} of {shards}"),
            ));
        }
        for (given, index) in nbytes.iter().zip(&self.order) {
            let expected = self.layout.local_bytes(*index, shard);
            if *given as u64 != expected {
                let name = &self.layout.tensors()[*index as usize].name;
                return Err(state_error(
                    py,
                    format!(
                        "{name} has {given} bytes in shard {shard}, and must have {expected} by its placements"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The memory of the local tensors of a shard, in the order of the layout. `buffers` are in the order in which the
    /// tensors were given.
    pub(crate) fn local(
        &self,
        py: Python<'_>,
        shard: u32,
        buffers: Vec<(usize, usize)>,
    ) -> PyResult<Vec<Memory>> {
        let nbytes: Vec<_> = buffers.iter().map(|buffer| buffer.1).collect();
        self.check(py, shard, &nbytes)?;
        let mut memory = vec![Memory::EMPTY; buffers.len()];
        for (buffer, index) in buffers.into_iter().zip(&self.order) {
            memory[*index as usize] = Memory::from_address::<u8>(buffer)?;
        }
        Ok(memory)
    }
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

/// The same for each commit that this process has at once, in a later round.
#[pyfunction]
pub(crate) fn provide_for_commits(py: Python<'_>, nbytes: usize) -> PyResult<()> {
    use_worker(py, |worker| {
        py.detach(|| worker.provide_for_commits(nbytes));
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

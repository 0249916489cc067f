//! States that are divided among workers: layouts, commits of a shard, and the base of a round.

use std::io::{self, Write};

use elasticrun_reshard::{
    Axis, Body, Division, Dtype, Fetch, Holder, Layout, Mesh, Plan, Seat, Source, Tensor,
};
use elasticrun_worker::{CommitId, DividedBase, Shard, State, state};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{dtype::Memory, error, process::use_worker};

/// A mesh: its shape, and the shard at each of its coordinates in row-major order.
type MeshSpec = (Vec<u32>, Vec<u32>);

/// How a mesh divides a tensor: the index of the mesh, and for each of its dimensions the dimension of the tensor that it
/// cuts, with the split factor of torch's `_StridedShard` or 1.
type DivisionSpec = (u16, Vec<Option<(u8, u32)>>);

/// Name, dtype, bytes of an element, shape. Without a division each shard holds all of it.
type TensorSpec = (String, String, u8, Vec<u64>, Option<DivisionSpec>);

fn state_error(py: Python<'_>, why: impl ToString) -> PyErr {
    error::exception(py, "StateError", why.to_string())
}

/// How a state is divided among workers.
#[pyclass(frozen, name = "Layout", module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PyLayout {
    layout: Layout,
    /// The index in the layout of each tensor that the caller gave.
    order: Vec<u32>,
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
    fn local(
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

/// Commits a shard of the state: copies its tensors (address, bytes) into memory of the agent. All members must have sealed
/// the commit before, which a barrier shows. With `first` it becomes commit 0 of the round. Returns the id (epoch, round,
/// count).
#[pyfunction]
#[pyo3(signature = (layout, shard, head, buffers, first = false))]
pub(crate) fn commit_shard(
    py: Python<'_>,
    layout: &PyLayout,
    shard: u32,
    head: &Bound<'_, PyBytes>,
    buffers: Vec<(usize, usize)>,
    first: bool,
) -> PyResult<(u64, u64, u64)> {
    let head = head.as_bytes();
    let tensors = layout.local(py, shard, buffers)?;
    let body = Body::new(&layout.layout, shard, head.len());
    let saved = SavedShard {
        layout: &layout.layout,
        body: body.map_err(|error| state_error(py, error))?,
        head,
        tensors,
    };
    let part = layout.shard(shard);
    use_worker(py, |worker| {
        let sealed = py.detach(|| match first {
            true => worker.seal_first_shard(part, &saved),
            false => worker.seal_shard(part, &saved),
        });
        let CommitId {
            epoch,
            round,
            count,
        } = sealed.map_err(|error| error::from_worker(py, &error))?;
        Ok((epoch.0, round.0, count))
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

/// Opens the base of the round, which is divided among workers. None if the round has no base.
#[pyfunction]
pub(crate) fn load_shards(py: Python<'_>) -> PyResult<Option<PyBase>> {
    let base = use_worker(py, |worker| {
        let opened = py.detach(|| worker.load_shards());
        opened.map_err(|error| error::from_worker(py, &error))
    })?;
    base.map(|base| PyBase::open(py, base)).transpose()
}

/// A commit that is divided among workers. Its bytes are mapped, not copied.
#[pyclass(frozen, name = "DividedBase", module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PyBase {
    base: DividedBase,
    layout: Py<PyLayout>,
    /// The shards that can be read, and where their parts are.
    copies: Vec<(u32, Body)>,
}

impl PyBase {
    fn open(py: Python<'_>, base: DividedBase) -> PyResult<Self> {
        let damaged = |why: &dyn std::fmt::Display| {
            state_error(py, format!("commit {} cannot be read: {why}", base.id()))
        };
        let Some((_, first)) = base.copies().next() else {
            return Err(damaged(&"no shard of it is in the memory of this host"));
        };
        let (layout, _) = Body::parse(first).map_err(|error| damaged(&error))?;
        if (layout.hash(), layout.shards()) != (base.layout(), base.shards()) {
            return Err(damaged(&"its header names another layout"));
        }
        let mut copies = Vec::new();
        for (shard, bytes) in base.copies() {
            let body = Body::parse_with(&layout, bytes).map_err(|error| damaged(&error))?;
            if body.shard() != shard {
                return Err(damaged(&format!(
                    "shard {shard} names itself {}",
                    body.shard()
                )));
            }
            copies.push((shard, body));
        }
        let order = (0..layout.tensors().len() as u32).collect();
        Ok(Self {
            layout: Py::new(py, PyLayout { layout, order })?,
            base,
            copies,
        })
    }

    /// The bytes of the shard at this index of the copies.
    fn bytes(&self, copy: usize) -> &[u8] {
        let shard = self.copies[copy].0;
        self.base.bytes(shard).unwrap_or_default()
    }
}

#[pymethods]
impl PyBase {
    /// The id of the commit.
    #[getter]
    fn id(&self) -> String {
        self.base.id().to_string()
    }

    /// How the commit is divided.
    #[getter]
    fn layout(&self, py: Python<'_>) -> Py<PyLayout> {
        self.layout.clone_ref(py)
    }

    /// The heads of the shards that can be read here, by shard.
    fn heads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let heads = PyDict::new(py);
        for (copy, (shard, body)) in self.copies.iter().enumerate() {
            heads.set_item(shard, PyBytes::new(py, &self.bytes(copy)[body.head()]))?;
        }
        Ok(heads)
    }

    /// Fills the local tensors of a shard of another layout. `buffers` are in the order in which that layout was given its
    /// tensors. Returns the number of bytes copied.
    ///
    /// Raises StateError if the commit lacks a tensor, or has it with another shape or dtype, or if it has one more.
    fn fill(
        &self,
        py: Python<'_>,
        layout: &PyLayout,
        shard: u32,
        buffers: Vec<(usize, usize)>,
    ) -> PyResult<u64> {
        let targets = layout.local(py, shard, buffers)?;
        let (old, new) = (&self.layout.get().layout, &layout.layout);
        let seats = [Seat {
            shard,
            host: 0,
            rank: 0,
        }];
        let holders: Vec<_> = (self.copies.iter().zip(0..))
            .map(|((shard, _), order)| Holder {
                shard: *shard,
                host: 0,
                rank: None,
                order,
            })
            .collect();
        let plan = Plan::new(old, new, &seats, &holders).map_err(|why| state_error(py, why))?;
        let differences = plan.differences();
        let name = |layout: &Layout, index: Option<&u32>| {
            index.map(|index| layout.tensors()[*index as usize].name.clone())
        };
        if let Some(name) = name(new, differences.missing.first()) {
            return Err(state_error(
                py,
                format!(
                    "{name} is not in commit {}: build the same model in each round",
                    self.id()
                ),
            ));
        }
        if let Some(name) = name(old, differences.extra.first()) {
            return Err(state_error(
                py,
                format!(
                    "{name} of commit {} is not in the new state: build the same model in each round",
                    self.id()
                ),
            ));
        }
        let fetches = plan.fetches(0);
        py.detach(|| {
            let copied = fetches.iter().map(|fetch| self.copy(fetch, &targets));
            copied.sum::<Option<u64>>()
        })
        .ok_or_else(|| state_error(py, "the plan of the new layout reads from no holder"))
        .and_then(|copied| {
            (self.base.check()).map_err(|error| error::from_worker(py, &error))?;
            Ok(copied)
        })
    }
}

impl PyBase {
    /// Copies a part of a tensor. Returns the number of bytes.
    fn copy(&self, fetch: &Fetch, targets: &[Memory]) -> Option<u64> {
        let Source::Holder(holder) = fetch.from else {
            return None;
        };
        let body = &self.copies.get(holder as usize)?.1;
        let range = body.tensors()[fetch.old_tensor as usize].clone();
        let source = &self.bytes(holder as usize)[range];
        // SAFETY: Python keeps the tensors alive and does not use them during the call. Each is of another memory, and only
        // this thread writes.
        let target = unsafe { targets[fetch.tensor as usize].as_mut::<u8>() };
        for run in fetch.runs() {
            let (from, to, len) = (run.source as usize, run.target as usize, run.len as usize);
            target[to..to + len].copy_from_slice(&source[from..from + len]);
        }
        Some(fetch.bytes())
    }
}

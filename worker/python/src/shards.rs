//! States that are divided among workers: layouts, commits of a shard, and the base of a round.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::SocketAddr,
    ops::Range,
};

use elasticrun_reshard::{
    Axis, Body, Differences, Division, Dtype, Fetch, Holder, Layout, Mesh, Plan, Run, Seat, Source,
    Tensor,
};
use elasticrun_worker::{DividedBase, Shard, State, Worker, available_memory, state};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{commits::numbers, dtype::Memory, error, process::use_worker, round::collective_queue};

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

/// A commit that is divided among workers. Copies of this host are mapped, and those of others are fetched when needed.
#[pyclass(frozen, name = "DividedBase", module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PyBase {
    base: DividedBase,
    layout: Py<PyLayout>,
    /// The shards of this host, and where their parts are.
    local: Vec<(u32, Body)>,
    /// The shards of other hosts, each with a number of the host that is not 0.
    remote: Vec<(u32, u32)>,
    /// The head of a shard of another host, if this one has no shard.
    remote_head: Option<(u32, Vec<u8>)>,
}

/// Why a commit cannot be read.
fn unreadable(py: Python<'_>, base: &DividedBase, why: impl std::fmt::Display) -> PyErr {
    state_error(py, format!("commit {} cannot be read: {why}", base.id()))
}

impl PyBase {
    fn open(py: Python<'_>, worker: &mut Worker, base: DividedBase) -> PyResult<Self> {
        let mut hosts: Vec<SocketAddr> = Vec::new();
        let mut remote = Vec::new();
        for (shard, mut holders) in base.remote() {
            let Some(address) = holders.next() else {
                continue;
            };
            let host = hosts.iter().position(|host| *host == address);
            let host = host.unwrap_or_else(|| {
                hosts.push(address);
                hosts.len() - 1
            });
            remote.push((shard, host as u32 + 1));
        }
        let mut remote_head = None;
        let layout = match base.copies().next() {
            Some((_, bytes)) => {
                let parsed = Body::parse(bytes);
                parsed.map_err(|error| unreadable(py, &base, error))?.0
            }
            None => {
                let Some((shard, _)) = remote.first().copied() else {
                    return Err(unreadable(py, &base, "no host has a shard of it"));
                };
                let mut fetch = |range: Range<usize>| fetch_one(py, worker, &base, shard, range);
                let header = fetch(0..Body::HEADER)?;
                let range = Body::layout_of_header(&header)
                    .map_err(|error| unreadable(py, &base, error))?;
                let layout = Layout::from_bytes(&fetch(range)?)
                    .map_err(|error| unreadable(py, &base, error))?;
                let body = Body::of_header(&layout, &header)
                    .map_err(|error| unreadable(py, &base, error))?;
                remote_head = Some((shard, fetch(body.head())?));
                layout
            }
        };
        if (layout.hash(), layout.shards()) != (base.layout(), base.shards()) {
            return Err(unreadable(py, &base, "its header names another layout"));
        }
        let mut local = Vec::new();
        for (shard, bytes) in base.copies() {
            let body = Body::parse_with(&layout, bytes);
            let body = body.map_err(|error| unreadable(py, &base, error))?;
            if body.shard() != shard {
                let named = body.shard();
                return Err(unreadable(
                    py,
                    &base,
                    format!("shard {shard} names itself {named}"),
                ));
            }
            local.push((shard, body));
        }
        let order = (0..layout.tensors().len() as u32).collect();
        Ok(Self {
            layout: Py::new(py, PyLayout { layout, order })?,
            base,
            local,
            remote,
            remote_head,
        })
    }

    /// The bytes of a shard of this host, by its index among them.
    fn bytes(&self, local: usize) -> &[u8] {
        let shard = self.local[local].0;
        self.base.bytes(shard).unwrap_or_default()
    }
}

/// Fetches a part of a shard of another host.
fn fetch_one(
    py: Python<'_>,
    worker: &mut Worker,
    base: &DividedBase,
    shard: u32,
    range: Range<usize>,
) -> PyResult<Vec<u8>> {
    let ranges = [(range.start as u64, range.len() as u64)];
    py.detach(|| worker.fetch_shard(base, shard, &ranges))
        .map_err(|error| error::from_worker(py, &error))
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

    /// The heads of the shards of this host, by shard. If there are none, that of one shard of another host.
    fn heads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let heads = PyDict::new(py);
        for (index, (shard, body)) in self.local.iter().enumerate() {
            heads.set_item(shard, PyBytes::new(py, &self.bytes(index)[body.head()]))?;
        }
        if let Some((shard, head)) = &self.remote_head {
            heads.set_item(shard, PyBytes::new(py, head))?;
        }
        Ok(heads)
    }

    /// Fills the local tensors of a shard of another layout. `buffers` are in the order in which that layout was given its
    /// tensors. So many threads copy. Returns the bytes that were copied, and those of them that came from other hosts.
    ///
    /// Raises StateError if the commit lacks a tensor, or has it with another shape or dtype, or if it has one more.
    #[pyo3(signature = (layout, shard, buffers, threads = 1))]
    fn fill(
        &self,
        py: Python<'_>,
        layout: &PyLayout,
        shard: u32,
        buffers: Vec<(usize, usize)>,
        threads: usize,
    ) -> PyResult<(u64, u64)> {
        let targets = layout.local(py, shard, buffers)?;
        let (old, new) = (&self.layout.get().layout, &layout.layout);
        // Each member fetches for itself, so it plans for itself.
        let seats = [Seat {
            shard,
            host: 0,
            rank: 0,
        }];
        let local = self.local.iter().map(|(shard, _)| (*shard, 0));
        let holders: Vec<_> = (local.chain(self.remote.iter().copied()).zip(0..))
            .map(|((shard, host), order)| Holder {
                shard,
                host,
                rank: None,
                order,
            })
            .collect();
        let plan = Plan::new(old, new, &seats, &holders).map_err(|why| state_error(py, why))?;
        self.check_names(py, new, plan.differences())?;
        let mut by_holder: BTreeMap<usize, Vec<Fetch>> = BTreeMap::new();
        for fetch in plan.fetches(0) {
            let Source::Holder(holder) = fetch.from else {
                return Err(state_error(
                    py,
                    "the plan of the new layout reads from no holder",
                ));
            };
            by_holder.entry(holder as usize).or_default().push(fetch);
        }
        let distant = by_holder.split_off(&self.local.len());
        let near: Vec<_> = (by_holder.iter())
            .flat_map(|(holder, fetches)| fetches.iter().map(|fetch| (*holder, fetch)))
            .collect();
        let copied = py.detach(|| self.copy_all(&near, &targets, threads));
        (self.base.check()).map_err(|error| error::from_worker(py, &error))?;
        let mut fetched = 0;
        for (holder, fetches) in distant {
            let shard = self.remote[holder - self.local.len()].0;
            fetched += use_worker(py, |worker| {
                self.fetch(py, worker, shard, &fetches, &targets)
            })?;
        }
        Ok((copied + fetched, fetched))
    }
}

/// A part of the bytes of a shard, and where its pieces go.
struct Part {
    offset: u64,
    len: u64,
    /// Offset in the part, tensor, offset in the tensor, length.
    pieces: Vec<(u64, u32, u64, u64)>,
}

/// Most bytes of one request to another host.
const REQUEST_BYTES: u64 = 64 << 20;

/// Most parts of one request. A request must fit a frame.
const REQUEST_PARTS: usize = 4096;

/// Bytes for which the start of a thread is worth its time.
const THREAD_BYTES: u64 = 16 << 20;

/// Most runs of a tensor that are requested one by one. A tensor of more runs is requested from its first to its last byte.
const MAX_RUNS: usize = 256;

impl PyBase {
    fn check_names(&self, py: Python<'_>, new: &Layout, differences: &Differences) -> PyResult<()> {
        let name = |layout: &Layout, index: u32| layout.tensors()[index as usize].name.clone();
        let old = &self.layout.get().layout;
        let why = match (differences.missing.first(), differences.extra.first()) {
            (Some(missing), _) => {
                format!("{} is not in commit {}", name(new, *missing), self.id())
            }
            (None, Some(extra)) => {
                let name = name(old, *extra);
                format!("{name} of commit {} is not in the new state", self.id())
            }
            (None, None) => return Ok(()),
        };
        Err(state_error(
            py,
            format!("{why}: build the same model in each round"),
        ))
    }

    /// Copies parts of tensors from shards of this host, in several threads if that is worth their start. Returns the number
    /// of bytes.
    fn copy_all(&self, parts: &[(usize, &Fetch)], targets: &[Memory], threads: usize) -> u64 {
        let bytes = parts.iter().map(|(_, fetch)| fetch.bytes()).sum::<u64>();
        let threads = (threads as u64).clamp(1, (bytes / THREAD_BYTES).max(1));
        let copy = |parts: &[(usize, &Fetch)]| {
            for (holder, fetch) in parts {
                self.copy(*holder, fetch, targets);
            }
        };
        let mut left = parts;
        std::thread::scope(|scope| {
            for _ in 1..threads {
                let mut share = 0;
                let count = left.iter().take_while(|(_, fetch)| {
                    share += fetch.bytes();
                    share <= bytes / threads
                });
                let (own, rest) = left.split_at(count.count());
                left = rest;
                scope.spawn(move || copy(own));
            }
            copy(left);
        });
        bytes
    }

    /// Copies a part of a tensor from a shard of this host.
    fn copy(&self, holder: usize, fetch: &Fetch, targets: &[Memory]) {
        let range = self.local[holder].1.tensors()[fetch.old_tensor as usize].clone();
        let source = &self.bytes(holder)[range];
        let target = targets[fetch.tensor as usize];
        for run in fetch.runs() {
            let (from, to, len) = (run.source as usize, run.target as usize, run.len as usize);
            // SAFETY: Python keeps the tensors alive and does not use them during the call. No two fetches write the same byte
            // (P1 of `elasticrun_reshard`).
            unsafe { target.write_at(to, &source[from..from + len]) };
        }
    }

    /// Fetches parts of tensors from a shard of another host. Returns the number of bytes.
    fn fetch(
        &self,
        py: Python<'_>,
        worker: &mut Worker,
        shard: u32,
        fetches: &[Fetch],
        targets: &[Memory],
    ) -> PyResult<u64> {
        let header = fetch_one(py, worker, &self.base, shard, 0..Body::HEADER)?;
        let body = Body::of_header(&self.layout.get().layout, &header)
            .map_err(|error| unreadable(py, &self.base, error))?;
        let parts: Vec<_> = fetches
            .iter()
            .flat_map(|fetch| parts(&body, fetch))
            .collect();
        let mut left = &parts[..];
        let mut fetched = 0;
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = |part: &&Part| {
                bytes += part.len;
                bytes <= REQUEST_BYTES
            };
            let count = left.iter().take(REQUEST_PARTS).take_while(fits).count();
            let (now, later) = left.split_at(count.max(1));
            left = later;
            let ranges: Vec<_> = now.iter().map(|part| (part.offset, part.len)).collect();
            let received = py.detach(|| worker.fetch_shard(&self.base, shard, &ranges));
            let received = received.map_err(|error| error::from_worker(py, &error))?;
            let mut rest = &received[..];
            for part in now {
                let (bytes, after) = rest.split_at(part.len as usize);
                rest = after;
                for (from, tensor, to, len) in &part.pieces {
                    let (from, to, len) = (*from as usize, *to as usize, *len as usize);
                    let target = targets[*tensor as usize];
                    // SAFETY: as in `copy`.
                    unsafe { target.write_at(to, &bytes[from..from + len]) };
                    fetched += len as u64;
                }
            }
        }
        Ok(fetched)
    }
}

/// The parts of a body to request for a part of a tensor.
fn parts(body: &Body, fetch: &Fetch) -> Vec<Part> {
    let start = body.tensors()[fetch.old_tensor as usize].start as u64;
    let is_scattered = fetch.runs().nth(MAX_RUNS).is_some();
    if !is_scattered {
        let part = |run: Run| Part {
            offset: start + run.source,
            len: run.len,
            pieces: vec![(0, fetch.tensor, run.target, run.len)],
        };
        // A long run would not fit a request.
        return fetch.runs().flat_map(split).map(part).collect();
    }
    let mut parts: Vec<Part> = Vec::new();
    for run in fetch.runs() {
        let (offset, end) = (start + run.source, start + run.source + run.len);
        let last = parts.last_mut();
        let joined = last.filter(|last| {
            offset >= last.offset && end.max(last.offset) - last.offset <= REQUEST_BYTES
        });
        match joined {
            Some(last) => {
                last.len = last.len.max(end - last.offset);
                let piece = (offset - last.offset, fetch.tensor, run.target, run.len);
                last.pieces.push(piece);
            }
            None => parts.push(Part {
                offset,
                len: run.len,
                pieces: vec![(0, fetch.tensor, run.target, run.len)],
            }),
        }
    }
    parts
}

/// A run as several ones that each fit a request.
fn split(run: Run) -> impl Iterator<Item = Run> {
    let steps = (0..run.len).step_by(REQUEST_BYTES as usize);
    steps.map(move |at| Run {
        source: run.source + at,
        target: run.target + at,
        len: REQUEST_BYTES.min(run.len - at),
    })
}

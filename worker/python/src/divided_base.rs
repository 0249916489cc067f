//! The base of a round that is divided among workers, and what a member copies of it.

use std::{collections::BTreeMap, mem::ManuallyDrop, ops::Range};

use elasticrun_reshard::{Body, Differences, Fetch, Holder, Layout, Plan, Seat};
use elasticrun_worker::{DividedBase, Route, Worker};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    dtype::Memory,
    error,
    local_shards::{LocalPart, LocalShards},
    process::use_worker,
    requests::{Part, REQUEST_BYTES, REQUEST_PARTS, parts},
    shards::{PyLayout, state_error},
};

/// Bytes that are worth a way through other hosts. Fewer take longer on the way than from their holder.
const LEAST_PASSED: u64 = 1 << 20;

/// A commit that is divided among workers. Copies of this host are mapped, and those of others are fetched when needed.
#[pyclass(frozen, name = "DividedBase", module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct PyBase {
    /// Always there, until the base is dropped.
    local: ManuallyDrop<LocalShards>,
    layout: Py<PyLayout>,
    /// The shards of other hosts, each with the copy that this member reads if it plans for itself, by index in
    /// [`DividedBase::holders`].
    remote: BTreeMap<u32, u32>,
    /// The rank of this member.
    rank: u32,
    /// The head of a shard of another host, if this one has no shard.
    remote_head: Option<(u32, Vec<u8>)>,
}

impl Drop for PyBase {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more.
        let local = unsafe { ManuallyDrop::take(&mut self.local) };
        // Unmapping takes as long as a copy of a part of the bytes. Without a further thread, it is done here.
        let builder = std::thread::Builder::new().name("elasticrun-unmap".to_owned());
        let _ = builder.spawn(move || drop(local));
    }
}

/// Why a commit cannot be read.
fn unreadable(py: Python<'_>, base: &DividedBase, why: impl std::fmt::Display) -> PyErr {
    state_error(py, format!("commit {} cannot be read: {why}", base.id()))
}

impl PyBase {
    pub(crate) fn open(py: Python<'_>, worker: &mut Worker, base: DividedBase) -> PyResult<Self> {
        let rank = worker.world().map_or(0, |world| world.rank());
        // Members read from different holders, if there are several.
        let own = |copies: Vec<u32>| copies[rank as usize % copies.len()];
        let remote: BTreeMap<u32, u32> = (base.remote().into_iter())
            .map(|(shard, copies)| (shard, own(copies)))
            .collect();
        let mut remote_head = None;
        let layout = match base.copies().next() {
            Some((_, bytes)) => {
                let parsed = Body::parse(bytes);
                parsed.map_err(|error| unreadable(py, &base, error))?.0
            }
            None => {
                let Some((&shard, &holder)) = remote.first_key_value() else {
                    return Err(unreadable(py, &base, "no host has a shard of it"));
                };
                let mut fetch = |range: Range<usize>| fetch_one(py, worker, &base, holder, range);
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
        let mut bodies = Vec::new();
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
            bodies.push((shard, body));
        }
        let order = (0..layout.tensors().len() as u32).collect();
        Ok(Self {
            layout: Py::new(py, PyLayout { layout, order })?,
            local: ManuallyDrop::new(LocalShards { base, bodies }),
            remote,
            rank,
            remote_head,
        })
    }

    fn base(&self) -> &DividedBase {
        &self.local.base
    }
}

/// Fetches a part of a copy of a shard from the host that has it.
fn fetch_one(
    py: Python<'_>,
    worker: &mut Worker,
    base: &DividedBase,
    holder: u32,
    range: Range<usize>,
) -> PyResult<Vec<u8>> {
    let ranges = [(range.start as u64, range.len() as u64)];
    let route = Route {
        holder,
        relays: &[],
    };
    py.detach(|| worker.fetch_shard(base, route, &ranges))
        .map_err(|error| error::from_worker(py, &error))
}

#[pymethods]
impl PyBase {
    /// The id of the commit.
    #[getter]
    fn id(&self) -> String {
        self.base().id().to_string()
    }

    /// How the commit is divided.
    #[getter]
    fn layout(&self, py: Python<'_>) -> Py<PyLayout> {
        self.layout.clone_ref(py)
    }

    /// The heads of the shards of this host, by shard. If there are none, that of one shard of another host.
    fn heads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let heads = PyDict::new(py);
        for (index, (shard, body)) in self.local.bodies.iter().enumerate() {
            let head = &self.local.bytes(index)[body.head()];
            heads.set_item(shard, PyBytes::new(py, head))?;
        }
        if let Some((shard, head)) = &self.remote_head {
            heads.set_item(shard, PyBytes::new(py, head))?;
        }
        Ok(heads)
    }

    /// Fills the local tensors of a shard of another layout. `shards` are those of all ranks, so that members plan alike who
    /// fetches what from whom. `buffers` are in the order in which that layout was given its tensors. So many threads copy.
    /// Returns the bytes that were copied, and those of them that came from other hosts.
    ///
    /// Raises StateError if the commit lacks a tensor, or has it with another shape or dtype, or if it has one more.
    #[pyo3(signature = (layout, shards, buffers, threads = 1))]
    fn fill(
        &self,
        py: Python<'_>,
        layout: &PyLayout,
        shards: Vec<u32>,
        buffers: Vec<(usize, usize)>,
        threads: usize,
    ) -> PyResult<(u64, u64)> {
        let own = shards.get(self.rank as usize);
        let shard = *own.ok_or_else(|| state_error(py, "there is no shard for this rank"))?;
        let targets = layout.local(py, shard, buffers)?;
        let (old, new) = (&self.layout.get().layout, &layout.layout);
        let input = self.plan_input(shard, &shards);
        let plan = Plan::new(old, new, &input.seats, &input.holders, LEAST_PASSED)
            .map_err(|why| state_error(py, why))?;
        self.check_names(py, new, plan.differences())?;
        let mut near = Vec::new();
        let mut distant: BTreeMap<(u32, Option<u32>), Vec<Fetch>> = BTreeMap::new();
        for fetch in plan.fetches(input.me) {
            match input.copies[fetch.holder as usize] {
                Location::Local(holder) => near.push(LocalPart { holder, fetch }),
                Location::Remote(holder) => {
                    let same = distant.entry((holder, fetch.chain)).or_default();
                    same.push(fetch);
                }
            }
        }
        let copied = use_worker(py, |worker| {
            let own = worker.own_shard(self.base());
            Ok(py.detach(|| self.local.copy(own, &near, &targets, threads)))
        })?;
        (self.base().check()).map_err(|error| error::from_worker(py, &error))?;
        let mut fetched = 0;
        for ((holder, chain), fetches) in distant {
            let chain = chain.map(|chain| &plan.chains()[chain as usize]);
            let relays = chain.map(|chain| chain.relays(self.base().host()));
            let relays: Vec<_> = (relays.into_iter().flatten())
                .map(|relay| (relay.host, relay.requests))
                .collect();
            let route = Route {
                holder,
                relays: &relays,
            };
            fetched += use_worker(py, |worker| {
                self.fetch(py, worker, route, &fetches, &targets)
            })?;
        }
        Ok((copied + fetched, fetched))
    }
}

/// Where the bytes of a holder of a plan are.
#[derive(Clone, Copy)]
enum Location {
    /// In memory of this host, by index in [`PyBase::local`].
    Local(usize),
    /// On another host, by index in [`DividedBase::holders`].
    Remote(u32),
}

/// Who takes part in a plan.
struct PlanInput {
    seats: Vec<Seat>,
    /// The index of this member among the seats.
    me: u32,
    holders: Vec<Holder>,
    /// Where the bytes of each holder are.
    copies: Vec<Location>,
}

impl PyBase {
    /// All members and all copies, in the same order in all members. If they do not know of each other, as with one of an
    /// older release, this member plans for itself.
    fn plan_input(&self, shard: u32, shards: &[u32]) -> PlanInput {
        let holder = |shard: u32, host: u32| Holder {
            shard,
            host,
            rank: None,
            order: 0,
        };
        let local = |shard: u32| self.local.bodies.iter().position(|(own, _)| *own == shard);
        let hosts = self.base().host_of_rank();
        if let Some(hosts) = hosts.filter(|hosts| hosts.len() == shards.len()) {
            let seats = hosts.iter().zip(shards).zip(0..);
            let all = self.base().holders();
            let copies = all.iter().zip(0..).map(|(copy, index)| {
                let near = local(copy.shard).filter(|_| copy.host == self.base().host());
                near.map_or(Location::Remote(index), Location::Local)
            });
            return PlanInput {
                seats: seats
                    .map(|((&host, &shard), rank)| Seat { shard, host, rank })
                    .collect(),
                me: self.rank,
                holders: (all.iter().map(|copy| holder(copy.shard, copy.host))).collect(),
                copies: copies.collect(),
            };
        }
        let near = self
            .local
            .bodies
            .iter()
            .map(|(shard, _)| *shard)
            .enumerate();
        let near = near.map(|(index, shard)| (holder(shard, 0), Location::Local(index)));
        let all = self.base().holders();
        let far = self.remote.iter().map(|(&shard, &index)| {
            let host = 1 + all[index as usize].host;
            (holder(shard, host), Location::Remote(index))
        });
        let (holders, copies) = near.chain(far).unzip();
        PlanInput {
            seats: vec![Seat {
                shard,
                host: 0,
                rank: 0,
            }],
            me: 0,
            holders,
            copies,
        }
    }
}

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

    /// Fetches parts of tensors from a shard of another host. Returns the number of bytes.
    fn fetch(
        &self,
        py: Python<'_>,
        worker: &mut Worker,
        route: Route<'_>,
        fetches: &[Fetch],
        targets: &[Memory],
    ) -> PyResult<u64> {
        let header = fetch_one(py, worker, self.base(), route.holder, 0..Body::HEADER)?;
        let body = Body::of_header(&self.layout.get().layout, &header)
            .map_err(|error| unreadable(py, self.base(), error))?;
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
            let received = py.detach(|| worker.fetch_shard(self.base(), route, &ranges));
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

//! This process as a worker: one for the whole module.

use std::{
    env,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
    time::Duration,
};

use elasticrun_worker::{CommitId, State, Through, Worker, World, state, worker::Boundary};
use pyo3::{exceptions::PyRuntimeError, prelude::*, sync::MutexExt, types::PyBytes};

use crate::{
    error,
    keys::Keys,
    lane::Lane,
    payload::{self, Adapter, Payload},
    watch::{self, Change},
};

/// How long a wait for a round lasts before it looks for signals.
const LOOK: Duration = Duration::from_millis(100);

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// A call of this process has put the worker back.
static RETURNED: Condvar = Condvar::new();

/// What this process is. Never locked during a call that may block: the worker is taken out for it.
#[derive(Debug)]
struct Process {
    /// Who made it: a forked child is nobody's worker.
    pid: u32,
    /// `None` while a call uses it.
    worker: Option<Worker>,
    /// The thread of the last call that used it.
    user: Option<ThreadId>,
    /// How many threads wait for it.
    awaited: usize,
    standing: Standing,
    lane: Option<Py<Lane>>,
    /// A thread waits for holds.
    watches_holds: bool,
}

/// The place of this process in the world.
#[pyclass(frozen, get_all, from_py_object, module = "elasticrun._native")]
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    rank: u32,
    size: u32,
    local_rank: u32,
    local_size: u32,
    cross_rank: u32,
    cross_size: u32,
    round: u64,
    epoch: u64,
    /// No other round has it.
    prefix: String,
    /// Where rank 0 may open a rendezvous of another library: `host:port`.
    coordinator: String,
    /// Name of the host in the job.
    host: String,
}

#[pymethods]
impl Standing {
    fn __repr__(&self) -> String {
        format!(
            "<rank {} of {} in round {}>",
            self.rank, self.size, self.round
        )
    }
}

impl Standing {
    /// What the agent said when it started this process, or a world of one.
    fn expected() -> Self {
        let number = |name: &str, otherwise: u32| {
            let value = env::var(name).ok().and_then(|value| value.parse().ok());
            value.unwrap_or(otherwise)
        };
        let agent = env::var_os("ELASTICRUN_AGENT_SOCKET").is_some();
        let of = |name: &str, otherwise: u32| {
            if agent {
                number(name, otherwise)
            } else {
                otherwise
            }
        };
        Self {
            rank: of("HOROVOD_RANK", 0),
            size: of("HOROVOD_SIZE", 1),
            local_rank: of("HOROVOD_LOCAL_RANK", 0),
            local_size: of("HOROVOD_LOCAL_SIZE", 1),
            cross_rank: of("HOROVOD_CROSS_RANK", 0),
            cross_size: of("HOROVOD_CROSS_SIZE", 1),
            round: 0,
            epoch: 0,
            prefix: String::new(),
            coordinator: String::new(),
            host: env::var("ELASTICRUN_HOST").unwrap_or_else(|_| "localhost".to_owned()),
        }
    }

    fn of(world: &World, host: String, epoch: u64) -> Self {
        Self {
            rank: world.rank(),
            size: world.size(),
            local_rank: world.local_rank(),
            local_size: world.local_size(),
            cross_rank: world.cross_rank(),
            cross_size: world.cross_size(),
            round: world.round().0,
            epoch,
            prefix: world.prefix().to_owned(),
            coordinator: world.coordinator().to_string(),
            host,
        }
    }
}

fn lock(py: Python<'_>) -> MutexGuard<'_, Option<Process>> {
    PROCESS
        .lock_py_attached(py)
        .unwrap_or_else(PoisonError::into_inner)
}

/// Looks at this process.
fn with<R>(py: Python<'_>, body: impl FnOnce(&mut Process) -> PyResult<R>) -> PyResult<R> {
    match &mut *lock(py) {
        None => Err(error::exception(
            py,
            "NotInitialized",
            "elasticrun is not initialized in this process: call init() first",
        )),
        Some(process) if process.pid != std::process::id() => Err(error::exception(
            py,
            "ForkedError",
            "this process was forked from one that had called init(): fork before init(), or start a new process",
        )),
        Some(process) => body(process),
    }
}

/// Uses the worker, without a lock. Waits for a call of another thread that uses it; the main thread sees signals meanwhile.
pub(crate) fn use_worker<R>(
    py: Python<'_>,
    body: impl FnOnce(&mut Worker) -> PyResult<R>,
) -> PyResult<R> {
    let mut worker = loop {
        if let Some(worker) = take_worker(py)? {
            break worker;
        }
        py.detach(wait_for_worker);
        py.check_signals()?;
    };
    let result = body(&mut worker);
    // System calls would double the cost of a boundary: whose process it is was asked above, and mostly nobody waits.
    if let Some(process) = &mut *lock(py) {
        process.worker = Some(worker);
        if process.awaited > 0 {
            RETURNED.notify_all();
        }
    }
    result
}

/// `None` while another thread uses it.
fn take_worker(py: Python<'_>) -> PyResult<Option<Worker>> {
    let own = thread::current().id();
    with(py, |process| {
        let worker = process.worker.take();
        if worker.is_none() && process.user == Some(own) {
            return Err(PyRuntimeError::new_err(
                "this thread commits, syncs or waits for a round already: do not do so in a state's save() or restore()",
            ));
        }
        if worker.is_some() {
            process.user = Some(own);
        }
        Ok(worker)
    })
}

/// Returns when the worker is put back, or after a moment.
fn wait_for_worker() {
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(known) = process.as_mut() else {
        return;
    };
    known.awaited += 1;
    let busy = |process: &mut Option<Process>| {
        (process.as_ref()).is_some_and(|process| process.worker.is_none())
    };
    let waited = RETURNED.wait_timeout_while(process, LOOK, busy);
    let (mut process, _) = waited.unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = process.as_mut() {
        known.awaited = known.awaited.saturating_sub(1);
    }
}

/// Attaches this process to the agent that started it; without one it is a world of one. Once; again it does
/// nothing.
#[pyfunction]
pub(crate) fn init(py: Python<'_>) -> PyResult<()> {
    if lock(py)
        .as_ref()
        .is_some_and(|process| process.pid == std::process::id())
    {
        return Ok(());
    }
    let worker = py
        .detach(Worker::attach)
        .map_err(|error| error::of(py, &error))?;
    worker
        .judge()
        .on_abort(Some(Box::new(|round| watch::tell(Change::Aborted, round))));
    *lock(py) = Some(Process {
        pid: std::process::id(),
        worker: Some(worker),
        user: None,
        awaited: 0,
        standing: Standing::expected(),
        lane: None,
        watches_holds: false,
    });
    Ok(())
}

/// Whether init() was called in this process and shutdown() was not.
#[pyfunction]
pub(crate) fn initialized(py: Python<'_>) -> bool {
    lock(py)
        .as_ref()
        .is_some_and(|process| process.pid == std::process::id())
}

/// The place of this process: in its round, or, before the first, as it is expected to be.
#[pyfunction]
pub(crate) fn world(py: Python<'_>) -> PyResult<Standing> {
    with(py, |process| Ok(process.standing.clone()))
}

/// Whether this process is a member of a round, which may be over.
#[pyfunction]
pub(crate) fn in_round(py: Python<'_>) -> PyResult<bool> {
    with(py, |process| Ok(process.lane.is_some()))
}

/// Leaves the round it is in, waits for the next one and connects to its members.
#[pyfunction]
pub(crate) fn join(py: Python<'_>) -> PyResult<Standing> {
    let last = with(py, |process| Ok(process.lane.take()))?;
    use_worker(py, |worker| {
        if let Some(lane) = last {
            let lane = lane.get();
            py.detach(|| {
                let failure = lane.failure();
                lane.close();
                if let Some(failure) = failure {
                    worker.failed(failure);
                }
                worker.leave(true);
            });
        }
        let group = loop {
            let joined = py.detach(|| worker.join(Some(LOOK)));
            match joined.map_err(|error| error::of(py, &error))? {
                Some(group) => break group,
                None => py.check_signals()?,
            }
        };
        let lane = Py::new(py, Lane::start(group, worker.judge())?)?;
        let epoch = worker.next_commit().map_or(0, |id| id.epoch.0);
        let Some(world) = worker.world() else {
            return Err(error::exception(py, "ElasticrunError", "the round is gone"));
        };
        with(py, |process| {
            process.standing = Standing::of(world, process.standing.host.clone(), epoch);
            process.lane = Some(lane);
            Ok(process.standing.clone())
        })
    })
}

/// The collectives of the round.
#[pyfunction]
pub(crate) fn lane(py: Python<'_>) -> PyResult<Py<Lane>> {
    with(py, |process| match &process.lane {
        Some(lane) => Ok(lane.clone_ref(py)),
        None => Err(error::exception(
            py,
            "NotInitialized",
            "this process is in no round yet: collectives are for members of a round",
        )),
    })
}

/// From now on commits of `round` are refused, if this process is still a member of it: operations of another library are
/// about to be cut short, and nobody is told that their results are none.
#[pyfunction]
pub(crate) fn refuse_commits(py: Python<'_>, round: u64) -> PyResult<()> {
    with(py, |process| {
        if let Some(lane) = process
            .lane
            .as_ref()
            .filter(|_| process.standing.round == round)
        {
            lane.get().refuse_commits();
        }
        Ok(())
    })
}

/// The keys of the round in the job's store: gone when the next one starts.
#[pyfunction]
pub(crate) fn round_keys(py: Python<'_>) -> PyResult<Keys> {
    use_worker(py, |worker| {
        let store = worker.store().map_err(|error| error::of(py, &error))?;
        Ok(Keys(store))
    })
}

/// The keys of the job in its store: they stay from round to round.
#[pyfunction]
pub(crate) fn job_keys(py: Python<'_>) -> PyResult<Keys> {
    use_worker(py, |worker| Ok(Keys(worker.job_store())))
}

/// Brings the state of this member to the base of the round: True if `restore(head, buffers)` was called. `save()`
/// gives (head, buffers) and is called if the live state of this member is what the round begins with: rank 0's if
/// there is no base, and that of each member that says `fresh`, since reset callbacks have changed it.
///
/// `compare((head, buffers) or None, told by all or None)` is called if members have committed different bytes as the base:
/// see `State::compare` of the SDK. Without it that is no error.
#[pyfunction]
#[pyo3(signature = (save, restore, fresh = false, compare = None))]
pub(crate) fn sync(
    py: Python<'_>,
    save: Py<PyAny>,
    restore: Py<PyAny>,
    fresh: bool,
    compare: Option<Py<PyAny>>,
) -> PyResult<bool> {
    let lane = lane(py)?;
    use_worker(py, |worker| {
        let mut adapter = Adapter {
            save: &save,
            restore: &restore,
            compare: compare.as_ref(),
            raised: Mutex::new(None),
        };
        let lane = lane.get();
        let synced = lane.borrow(py, |group| worker.sync(group, &mut adapter, fresh))?;
        let raised = adapter.raised.into_inner().unwrap_or_default();
        match (synced, raised) {
            (_, Some(raised)) => Err(raised),
            (Some(Ok(changed)), None) => Ok(changed),
            (Some(Err(error)), None) => Err(error::of(py, &error)),
            (None, None) => Err(error::exception(py, "WorkersFailed", "the round is over")),
        }
    })
}

/// Has this process, which is rank 0, hold the base of the round: `newest` gives it then.
#[pyfunction]
pub(crate) fn fetch_base(py: Python<'_>) -> PyResult<()> {
    use_worker(py, |worker| {
        py.detach(|| worker.fetch_base())
            .map_err(|error| error::of(py, &error))
    })
}

/// Starts the thread that waits for holds, once.
pub(crate) fn watch_holds(py: Python<'_>) -> PyResult<()> {
    if with(py, |process| {
        Ok(std::mem::replace(&mut process.watches_holds, true))
    })? {
        return Ok(());
    }
    use_worker(py, |worker| {
        let held = |round| watch::tell(Change::Held, round);
        worker
            .judge()
            .on_hold(held)
            .map_err(|error| error::of(py, &error))
    })
}

/// The live state is about to change.
#[pyfunction]
pub(crate) fn training(py: Python<'_>) -> PyResult<()> {
    use_worker(py, |worker| {
        worker.train();
        Ok(())
    })
}

/// Whether this host may go away soon, as its agent has heard: a word in memory.
#[pyfunction]
pub(crate) fn host_at_risk(py: Python<'_>) -> PyResult<bool> {
    use_worker(py, |worker| Ok(worker.host_at_risk()))
}

/// The id that the next commit will have.
pub(crate) fn next_commit(py: Python<'_>) -> PyResult<String> {
    use_worker(py, |worker| {
        let id = worker
            .next_commit()
            .map_err(|error| error::of(py, &error))?;
        Ok(id.to_string())
    })
}

/// The round, and the commit that it goes on from, if there is one.
pub(crate) fn base(py: Python<'_>) -> PyResult<(u64, Option<String>)> {
    use_worker(py, |worker| {
        let world = worker.world();
        let base = world.and_then(World::base).map(|base| base.to_string());
        Ok((world.map_or(0, |world| world.round().0), base))
    })
}

/// A payload as a state that is only saved.
struct Saved<'a>(&'a Payload);

impl State for Saved<'_> {
    fn save(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        payload::write(self.0, out)
    }

    fn restore(&mut self, _: &mut &[u8]) -> Result<(), state::Error> {
        Err(state::Error::Invalid("it is only saved".to_owned()))
    }
}

/// Commits: copies head and buffers (address, bytes) into memory of the agent. Gives (epoch, round, count).
#[pyfunction]
pub(crate) fn seal(
    py: Python<'_>,
    head: Py<PyBytes>,
    buffers: Vec<(usize, usize)>,
) -> PyResult<(u64, u64, u64)> {
    let payload = Payload::new(head, buffers)?;
    use_worker(py, |worker| {
        let sealed = py.detach(|| worker.seal(&Saved(&payload)));
        let CommitId {
            epoch,
            round,
            count,
        } = sealed.map_err(|error| error::of(py, &error))?;
        Ok((epoch.0, round.0, count))
    })
}

/// One boundary: False to train on, True if this is the common boundary of all members: then seal(), and raise what
/// leave_here() gives. A few hundred nanoseconds while nothing changes.
#[pyfunction]
pub(crate) fn boundary(py: Python<'_>) -> PyResult<bool> {
    use_worker(py, |worker| {
        // A held boundary sleeps until the agent has heard all members.
        let at = py.detach(|| worker.boundary());
        match at.map_err(|error| error::of(py, &error))? {
            Boundary::Continue => Ok(false),
            Boundary::Leave => Ok(true),
        }
    })
}

/// The state is that of the last commit, which was made at the common boundary. Gives the exception to raise.
#[pyfunction]
pub(crate) fn leave_here(py: Python<'_>) -> PyResult<Py<PyAny>> {
    use_worker(py, |worker| {
        let left = worker.leave_at_commit();
        Ok(error::of(py, &left).into_value(py).into_any())
    })
}

/// Calls `restore(head, buffers)`, which makes the live state of them, with the newest commit of this process. False if
/// there is none.
#[pyfunction]
pub(crate) fn newest(py: Python<'_>, restore: &Bound<'_, PyAny>) -> PyResult<bool> {
    use_worker(py, |worker| {
        let restored = worker.restore_with(|_, bytes| payload::give(py, restore, bytes));
        match restored.map_err(|error| error::of(py, &error))? {
            Some(result) => result.map(|()| true),
            None => Ok(false),
        }
    })
}

/// Whether the round goes on from a commit that steps have led to, and this process has never been synced nor has it
/// committed.
#[pyfunction]
pub(crate) fn lacks_base(py: Python<'_>) -> PyResult<bool> {
    use_worker(py, |worker| {
        worker.lacks_base().map_err(|error| error::of(py, &error))
    })
}

/// Training is done here: the job ends when it is everywhere. Collectives of the round stay usable.
#[pyfunction]
pub(crate) fn finish(py: Python<'_>) -> PyResult<()> {
    use_worker(py, |worker| {
        py.detach(|| worker.finish());
        Ok(())
    })
}

/// This process has failed and ends soon, with a non-zero exit code: the others go on at once. If it fails only since a
/// peer did, that one may say so first. Nothing if no round was joined or training is done.
#[pyfunction]
pub(crate) fn fail(py: Python<'_>, through_peer: bool) -> PyResult<()> {
    if !in_round(py)? {
        return Ok(());
    }
    use_worker(py, |worker| {
        let through = if through_peer {
            Through::Peer
        } else {
            Through::Itself
        };
        py.detach(|| worker.fail(through));
        Ok(())
    })
}

/// Ends what init() began as far as collectives go; the process stays the agent's worker until it ends.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) -> PyResult<()> {
    let lane = match &mut *lock(py) {
        Some(process) if process.pid == std::process::id() => process.lane.take(),
        _ => None,
    };
    if let Some(lane) = lane {
        py.detach(|| lane.get().close());
    }
    Ok(())
}

/// The worker moves between threads of Python.
const _: fn() = || {
    fn sent<T: Send>() {}
    sent::<Worker>();
    sent::<Arc<Lane>>();
};

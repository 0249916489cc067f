//! The worker of this process. The module holds exactly one.

use std::{
    env,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
    time::Duration,
};

use elasticrun_worker::{CommitId, FailureOrigin, State, Worker, World, state, worker::Boundary};
use pyo3::{exceptions::PyRuntimeError, prelude::*, sync::MutexExt, types::PyBytes};

use crate::{
    collective_queue::CollectiveQueue,
    error,
    keys::Keys,
    payload::{self, Adapter, Payload},
    watch::{self, RoundEvent},
};

/// Interval at which a wait for a round checks for signals.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// Notified when a call puts the worker back.
static WORKER_RETURNED: Condvar = Condvar::new();

/// State of this process. A call that may block takes the worker out, so the lock is never held during it.
#[derive(Debug)]
struct Process {
    /// The process that called `init`. A forked child has another pid and is not a worker.
    pid: u32,
    /// `None` while a call uses the worker.
    worker: Option<Worker>,
    /// The thread of the last call that used the worker.
    user: Option<ThreadId>,
    /// Number of threads that wait for the worker.
    waiters: usize,
    world_info: WorldInfo,
    queue: Option<Py<CollectiveQueue>>,
    /// The queue of the round that this process was in at `park`. The process is still a member, until the round is over.
    parked: Option<Py<CollectiveQueue>>,
    /// Whether a thread waits for holds.
    watches_holds: bool,
    /// Whether this process has reported its failure. It does not leave the round then: members would take that for a normal end
    /// if they learn of it before the failure.
    failed: bool,
}

/// Ranks, sizes and round of this process.
#[pyclass(frozen, get_all, from_py_object, module = "elasticrun._native")]
#[derive(Clone, Debug)]
pub(crate) struct WorldInfo {
    rank: u32,
    size: u32,
    local_rank: u32,
    local_size: u32,
    cross_rank: u32,
    cross_size: u32,
    round: u64,
    epoch: u64,
    /// Key prefix that is unique to the round.
    prefix: String,
    /// Address (`host:port`) at which rank 0 may open a rendezvous of another library.
    coordinator: String,
    /// Name of the host in the job.
    host: String,
}

#[pymethods]
impl WorldInfo {
    fn __repr__(&self) -> String {
        format!(
            "<rank {} of {} in round {}>",
            self.rank, self.size, self.round
        )
    }
}

impl WorldInfo {
    /// The values that the agent set in the environment, or those of a single process without an agent.
    fn expected() -> Self {
        let number = |name: &str, otherwise: u32| {
            let value = env::var(name).ok().and_then(|value| value.parse().ok());
            value.unwrap_or(otherwise)
        };
        let agent = env::var_os("ELASTICRUN_AGENT_SOCKET").is_some();
        let value = |name: &str, otherwise: u32| {
            if agent {
                number(name, otherwise)
            } else {
                otherwise
            }
        };
        Self {
            rank: value("HOROVOD_RANK", 0),
            size: value("HOROVOD_SIZE", 1),
            local_rank: value("HOROVOD_LOCAL_RANK", 0),
            local_size: value("HOROVOD_LOCAL_SIZE", 1),
            cross_rank: value("HOROVOD_CROSS_RANK", 0),
            cross_size: value("HOROVOD_CROSS_SIZE", 1),
            round: 0,
            epoch: 0,
            prefix: String::new(),
            coordinator: String::new(),
            host: env::var("ELASTICRUN_HOST").unwrap_or_else(|_| "localhost".to_owned()),
        }
    }

    fn from_world(world: &World, host: String, epoch: u64) -> Self {
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

/// Calls `body` with the state of this process, under the lock.
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

/// Calls `body` with the worker and without the lock. Waits while a call of another thread uses the worker. The main thread
/// checks for signals meanwhile.
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
    // take_worker() has checked the pid, and usually no thread waits: further system calls would double the cost of a boundary.
    if let Some(process) = &mut *lock(py) {
        process.worker = Some(worker);
        if process.waiters > 0 {
            WORKER_RETURNED.notify_all();
        }
    }
    result
}

/// Takes the worker out; `None` while another thread uses it.
fn take_worker(py: Python<'_>) -> PyResult<Option<Worker>> {
    let this_thread = thread::current().id();
    with(py, |process| {
        let worker = process.worker.take();
        if worker.is_none() && process.user == Some(this_thread) {
            return Err(PyRuntimeError::new_err(
                "this thread commits, syncs or waits for a round already: do not do so in a state's save() or restore()",
            ));
        }
        if worker.is_some() {
            process.user = Some(this_thread);
        }
        Ok(worker)
    })
}

/// Returns when the worker is put back, at the latest after [`SIGNAL_POLL`].
fn wait_for_worker() {
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(known) = process.as_mut() else {
        return;
    };
    known.waiters += 1;
    let busy = |process: &mut Option<Process>| {
        (process.as_ref()).is_some_and(|process| process.worker.is_none())
    };
    let waited = WORKER_RETURNED.wait_timeout_while(process, SIGNAL_POLL, busy);
    let (mut process, _) = waited.unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = process.as_mut() {
        known.waiters = known.waiters.saturating_sub(1);
    }
}

/// Attaches this process to the agent that started it. Without an agent the process is the only worker. Further calls do
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
        .map_err(|error| error::from_worker(py, &error))?;
    worker.error_classifier().on_abort(Some(Box::new(|round| {
        watch::notify(RoundEvent::Aborted, round)
    })));
    *lock(py) = Some(Process {
        pid: std::process::id(),
        worker: Some(worker),
        user: None,
        waiters: 0,
        world_info: WorldInfo::expected(),
        queue: None,
        parked: None,
        watches_holds: false,
        failed: false,
    });
    Ok(())
}

/// Ranks and sizes of this process in its round. Before the first round: the expected ones.
#[pyfunction]
pub(crate) fn world(py: Python<'_>) -> PyResult<WorldInfo> {
    with(py, |process| Ok(process.world_info.clone()))
}

/// Whether this process is a member of a round, which may be over.
#[pyfunction]
pub(crate) fn in_round(py: Python<'_>) -> PyResult<bool> {
    with(py, |process| Ok(process.queue.is_some()))
}

/// Leaves the current or parked round, waits for the next one and connects to its members.
#[pyfunction]
pub(crate) fn join(py: Python<'_>) -> PyResult<WorldInfo> {
    let last = with(py, |process| {
        let parked = process.parked.take();
        Ok(process.queue.take().or(parked))
    })?;
    use_worker(py, |worker| {
        if let Some(queue) = last {
            let queue = queue.get();
            py.detach(|| {
                let failure = queue.failure();
                queue.close();
                if let Some(failure) = failure {
                    worker.record_error(failure);
                }
                worker.leave(true);
            });
        }
        let group = loop {
            let joined = py.detach(|| worker.join(Some(SIGNAL_POLL)));
            match joined.map_err(|error| error::from_worker(py, &error))? {
                Some(group) => break group,
                None => py.check_signals()?,
            }
        };
        let queue = Py::new(
            py,
            CollectiveQueue::start(group, worker.error_classifier())?,
        )?;
        let epoch = worker.next_commit().map_or(0, |id| id.epoch.0);
        let Some(world) = worker.world() else {
            return Err(error::exception(py, "ElasticrunError", "the round is gone"));
        };
        with(py, |process| {
            process.world_info =
                WorldInfo::from_world(world, process.world_info.host.clone(), epoch);
            process.queue = Some(queue);
            Ok(process.world_info.clone())
        })
    })
}

/// The queue of the collectives of the round.
#[pyfunction]
pub(crate) fn collective_queue(py: Python<'_>) -> PyResult<Py<CollectiveQueue>> {
    with(py, |process| match &process.queue {
        Some(queue) => Ok(queue.clone_ref(py)),
        None => Err(error::exception(
            py,
            "NotInitialized",
            "this process is in no round yet: collectives are for members of a round",
        )),
    })
}

/// Refuses further commits of `round`, if this process is still a member of it. The caller is about to abort operations of
/// another library, which may leave invalid results without an error.
#[pyfunction]
pub(crate) fn refuse_commits(py: Python<'_>, round: u64) -> PyResult<()> {
    with(py, |process| {
        if let Some(queue) = process
            .queue
            .as_ref()
            .filter(|_| process.world_info.round == round)
        {
            queue.get().refuse_commits();
        }
        Ok(())
    })
}

/// The keys of the round in the job's store. They are deleted when the next round starts.
#[pyfunction]
pub(crate) fn round_keys(py: Python<'_>) -> PyResult<Keys> {
    use_worker(py, |worker| {
        let store = worker
            .store()
            .map_err(|error| error::from_worker(py, &error))?;
        Ok(Keys(store))
    })
}

/// The keys of the job in its store. They persist across rounds.
#[pyfunction]
pub(crate) fn job_keys(py: Python<'_>) -> PyResult<Keys> {
    use_worker(py, |worker| Ok(Keys(worker.job_store())))
}

/// Brings the state of this member to the base of the round. Returns whether it called `restore(head, buffers)`.
///
/// `save()` returns (head, buffers). It is called if the round begins with the live state of this member: that of rank 0 if
/// there is no base, and that of each member with `fresh`, whose reset callbacks have changed the state.
///
/// `compare((head, buffers) or None, answers of all ranks or None)` is called if members have committed different bytes as the
/// base: see `State::compare` of the SDK. Without `compare` that is no error.
#[pyfunction]
#[pyo3(signature = (save, restore, fresh = false, compare = None))]
pub(crate) fn sync(
    py: Python<'_>,
    save: Py<PyAny>,
    restore: Py<PyAny>,
    fresh: bool,
    compare: Option<Py<PyAny>>,
) -> PyResult<bool> {
    let queue = collective_queue(py)?;
    use_worker(py, |worker| {
        let mut adapter = Adapter {
            save: &save,
            restore: &restore,
            compare: compare.as_ref(),
            raised: Mutex::new(None),
        };
        let queue = queue.get();
        let synced = queue.borrow(py, |group| worker.sync(group, &mut adapter, fresh))?;
        let raised = adapter.raised.into_inner().unwrap_or_default();
        match (synced, raised) {
            (_, Some(raised)) => Err(raised),
            (Some(Ok(changed)), None) => Ok(changed),
            (Some(Err(error)), None) => Err(error::from_worker(py, &error)),
            (None, None) => Err(error::exception(py, "WorkersFailed", "the round is over")),
        }
    })
}

/// Fetches the base of the round to this process, which is rank 0. `with_newest_commit` reads it afterwards.
#[pyfunction]
pub(crate) fn fetch_base(py: Python<'_>) -> PyResult<()> {
    use_worker(py, |worker| {
        py.detach(|| worker.fetch_base())
            .map_err(|error| error::from_worker(py, &error))
    })
}

/// Calls `callback(round)` on a separate thread as soon as the job asks the members of a round for their common boundary,
/// because its hosts change. The training thread has not reached a boundary then. None removes the callback.
#[pyfunction]
#[pyo3(signature = (callback))]
pub(crate) fn on_hosts_updated(py: Python<'_>, callback: Option<Py<PyAny>>) -> PyResult<()> {
    if callback.is_some() {
        watch_holds(py)?;
    }
    watch::watch(py, RoundEvent::Held, callback)
}

/// Starts the thread that waits for holds, unless it runs already.
fn watch_holds(py: Python<'_>) -> PyResult<()> {
    if with(py, |process| {
        Ok(std::mem::replace(&mut process.watches_holds, true))
    })? {
        return Ok(());
    }
    use_worker(py, |worker| {
        let held = |round| watch::notify(RoundEvent::Held, round);
        worker
            .error_classifier()
            .on_hold(held)
            .map_err(|error| error::from_worker(py, &error))
    })
}

/// Marks the live state as about to change.
#[pyfunction]
pub(crate) fn training(py: Python<'_>) -> PyResult<()> {
    use_worker(py, |worker| {
        worker.train();
        Ok(())
    })
}

/// Whether the agent has a notice that this host may go away soon. Reads one word of shared memory.
#[pyfunction]
pub(crate) fn host_at_risk(py: Python<'_>) -> PyResult<bool> {
    use_worker(py, |worker| Ok(worker.host_at_risk()))
}

/// The id that the next commit will have.
pub(crate) fn next_commit(py: Python<'_>) -> PyResult<String> {
    use_worker(py, |worker| {
        let id = worker
            .next_commit()
            .map_err(|error| error::from_worker(py, &error))?;
        Ok(id.to_string())
    })
}

/// The round, and the commit that it continues from, if there is one.
pub(crate) fn base(py: Python<'_>) -> PyResult<(u64, Option<String>)> {
    use_worker(py, |worker| {
        let world = worker.world();
        let base = world.and_then(World::base).map(|base| base.to_string());
        Ok((world.map_or(0, |world| world.round().0), base))
    })
}

/// A payload as a [`State`] that can only be saved.
struct Saved<'a>(&'a Payload);

impl State for Saved<'_> {
    fn save(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        payload::write(self.0, out)
    }

    fn restore(&mut self, _: &mut &[u8]) -> Result<(), state::Error> {
        Err(state::Error::Invalid("it is only saved".to_owned()))
    }
}

/// Commits: copies head and buffers (address, bytes) into memory of the agent. Returns the id (epoch, round, count).
#[pyfunction]
pub(crate) fn commit(
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
        } = sealed.map_err(|error| error::from_worker(py, &error))?;
        Ok((epoch.0, round.0, count))
    })
}

/// One boundary. False: continue to train. True: this is the common boundary of all members; call `commit()` and raise what
/// `leave_at_boundary()` returns. Takes a few hundred nanoseconds while nothing changes.
#[pyfunction]
pub(crate) fn boundary(py: Python<'_>) -> PyResult<bool> {
    use_worker(py, |worker| {
        // During a hold, a boundary sleeps until all members have reported theirs to the agent.
        let boundary = py.detach(|| worker.boundary());
        match boundary.map_err(|error| error::from_worker(py, &error))? {
            Boundary::Continue => Ok(false),
            Boundary::Leave => Ok(true),
        }
    })
}

/// Leaves the round at its common boundary, with the last commit as the state. Returns the exception to raise.
#[pyfunction]
pub(crate) fn leave_at_boundary(py: Python<'_>) -> PyResult<Py<PyAny>> {
    use_worker(py, |worker| {
        let left = worker.leave_at_commit();
        Ok(error::from_worker(py, &left).into_value(py).into_any())
    })
}

/// Calls `restore(head, buffers)` with the newest commit of this process. Returns False if there is none.
#[pyfunction]
pub(crate) fn with_newest_commit(py: Python<'_>, restore: &Bound<'_, PyAny>) -> PyResult<bool> {
    use_worker(py, |worker| {
        let restored =
            worker.restore_with(|_, bytes| payload::call_with_buffers(py, restore, bytes));
        match restored.map_err(|error| error::from_worker(py, &error))? {
            Some(result) => result.map(|()| true),
            None => Ok(false),
        }
    })
}

/// Whether the round continues from a commit that contains training steps, while this process has neither synced nor committed.
#[pyfunction]
pub(crate) fn lacks_base(py: Python<'_>) -> PyResult<bool> {
    use_worker(py, |worker| {
        worker
            .lacks_base()
            .map_err(|error| error::from_worker(py, &error))
    })
}

/// Reports that training is done in this process. The job ends when all have reported it. Collectives stay usable.
#[pyfunction]
pub(crate) fn finish(py: Python<'_>) -> PyResult<()> {
    use_worker(py, |worker| {
        py.detach(|| worker.finish());
        Ok(())
    })
}

/// Reports that this process has failed and will exit with a non-zero code, so that the others continue at once. With
/// `through_peer` a peer caused the failure, and its own report may come first. Does nothing before the first round and after
/// the end of training.
#[pyfunction]
pub(crate) fn fail(py: Python<'_>, through_peer: bool) -> PyResult<()> {
    if !in_round(py)? {
        return Ok(());
    }
    with(py, |process| {
        process.failed = true;
        Ok(())
    })?;
    use_worker(py, |worker| {
        let through = if through_peer {
            FailureOrigin::Peer
        } else {
            FailureOrigin::Local
        };
        py.detach(|| worker.fail(through));
        Ok(())
    })
}

/// Sets the round aside: this process stays a member, whose collectives no call can reach until `resume`. Submitted ones go on.
#[pyfunction]
pub(crate) fn park(py: Python<'_>) -> PyResult<()> {
    with(py, |process| {
        if let Some(queue) = process.queue.take() {
            process.parked = Some(queue);
        }
        Ok(())
    })
}

/// Returns to the parked round. None if there is none, if one of its collectives has failed, or if it is over: then `join`
/// leaves it.
#[pyfunction]
pub(crate) fn resume(py: Python<'_>) -> PyResult<Option<WorldInfo>> {
    use_worker(py, |worker| {
        let is_over = worker.is_over();
        with(py, |process| {
            let usable =
                |queue: &mut Py<CollectiveQueue>| !is_over && queue.get().failure().is_none();
            Ok(process.parked.take_if(usable).map(|queue| {
                process.queue = Some(queue);
                process.world_info.clone()
            }))
        })
    })
}

/// Closes the collectives, also those of a parked round. The process stays a worker of the agent until it exits. Does nothing
/// after `fail`.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) -> PyResult<()> {
    let queues = match &mut *lock(py) {
        Some(process) if process.pid == std::process::id() && !process.failed => {
            [process.queue.take(), process.parked.take()]
        }
        _ => [None, None],
    };
    for queue in queues.into_iter().flatten() {
        py.detach(|| queue.get().close());
    }
    Ok(())
}

/// The worker and the queue move between Python threads, so both are `Send`.
const _: fn() = || {
    fn sent<T: Send>() {}
    sent::<Worker>();
    sent::<Arc<CollectiveQueue>>();
};

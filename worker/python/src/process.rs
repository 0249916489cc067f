//! The worker of this process, from `init` to `shutdown`. The module holds exactly one.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
    time::Duration,
};

use elasticrun_worker::{FailureOrigin, Worker};
use pyo3::{exceptions::PyRuntimeError, prelude::*, sync::MutexExt};

use crate::{
    collective_queue::CollectiveQueue,
    error,
    watch::{self, RoundEvent},
    world::WorldInfo,
};

/// Interval at which a wait for a round checks for signals.
pub(crate) const SIGNAL_POLL: Duration = Duration::from_millis(100);

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// Notified when a call puts the worker back.
static WORKER_RETURNED: Condvar = Condvar::new();

/// State of this process. A call that may block takes the worker out, so the lock is never held during it.
#[derive(Debug)]
pub(crate) struct Process {
    /// The process that called `init`. A forked child has another pid and is not a worker.
    pid: u32,
    /// `None` while a call uses the worker.
    worker: Option<Worker>,
    /// The thread of the last call that used the worker.
    user: Option<ThreadId>,
    /// Number of threads that wait for the worker.
    waiters: usize,
    pub(crate) world_info: WorldInfo,
    pub(crate) queue: Option<Py<CollectiveQueue>>,
    /// The queue of the round that this process was in at `park`. The process is still a member, until the round is over.
    pub(crate) parked: Option<Py<CollectiveQueue>>,
    /// Whether a thread waits for holds.
    pub(crate) watches_holds: bool,
    /// Whether this process has reported its failure. It does not leave the round then: members would take that for a normal end
    /// if they learn of it before the failure.
    failed: bool,
}

fn lock(py: Python<'_>) -> MutexGuard<'_, Option<Process>> {
    PROCESS
        .lock_py_attached(py)
        .unwrap_or_else(PoisonError::into_inner)
}

/// Calls `body` with the state of this process, under the lock.
pub(crate) fn with<R>(
    py: Python<'_>,
    body: impl FnOnce(&mut Process) -> PyResult<R>,
) -> PyResult<R> {
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

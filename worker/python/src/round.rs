//! A round, from `join` to the next one.

use std::sync::Mutex;

use pyo3::prelude::*;

use crate::{
    collective_queue::CollectiveQueue,
    error,
    keys::Keys,
    payload::Adapter,
    process::{SIGNAL_POLL, use_worker, with},
    watch::{self, RoundEvent},
    world::WorldInfo,
};

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

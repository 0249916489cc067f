//! Commits, boundaries, and the base that a round continues from.

use elasticrun_worker::{CommitId, State, World, state, worker::Boundary};
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    error,
    payload::{self, Payload},
    process::{use_worker, with},
};

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
        let id = sealed.map_err(|error| error::from_worker(py, &error))?;
        Ok(numbers(id))
    })
}

/// The id of a commit as epoch, round and count.
pub(crate) fn numbers(id: CommitId) -> (u64, u64, u64) {
    (id.epoch.0, id.round.0, id.count)
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

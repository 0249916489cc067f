//! Callbacks for what happens to the round while Python does something else.
//!
//! The SDK's threads hear of it and must not wait for the GIL; a thread of ours does.

use std::sync::{Mutex, PoisonError, mpsc};

use pyo3::{prelude::*, sync::MutexExt};

/// What is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// The round is aborted.
    Aborted,
    /// The job asks all members of the round for their common boundary.
    Held,
}

/// What to call, and the way to the thread that calls.
static WATCH: Mutex<Watch> = Mutex::new(Watch {
    aborted: None,
    held: None,
    changes: None,
});

#[derive(Debug)]
struct Watch {
    aborted: Option<Py<PyAny>>,
    held: Option<Py<PyAny>>,
    changes: Option<mpsc::Sender<(Change, u64)>>,
}

impl Watch {
    fn callback(&mut self, change: Change) -> &mut Option<Py<PyAny>> {
        match change {
            Change::Aborted => &mut self.aborted,
            Change::Held => &mut self.held,
        }
    }
}

/// Tells the watcher. On the SDK's threads; it waits for nobody who needs the GIL.
pub(crate) fn tell(change: Change, round: u64) {
    let watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(changes) = &watch.changes {
        // The thread ends with the process only.
        let _ = changes.send((change, round));
    }
}

/// Calls `callback(round)` at once when a round of this process is aborted, on a thread of ours; None calls nobody.
/// There is one: what was given before is called no more.
#[pyfunction]
#[pyo3(signature = (callback))]
pub(crate) fn on_abort(py: Python<'_>, callback: Option<Py<PyAny>>) -> PyResult<()> {
    watch(py, Change::Aborted, callback)
}

/// Calls `callback(round)` as soon as the job asks the members of a round for their common boundary, since its hosts
/// change: before the training thread comes to a boundary. On a thread of ours; None calls nobody.
#[pyfunction]
#[pyo3(signature = (callback))]
pub(crate) fn on_hosts_updated(py: Python<'_>, callback: Option<Py<PyAny>>) -> PyResult<()> {
    if callback.is_some() {
        crate::process::watch_holds(py)?;
    }
    watch(py, Change::Held, callback)
}

fn watch(py: Python<'_>, change: Change, callback: Option<Py<PyAny>>) -> PyResult<()> {
    let mut watch = WATCH
        .lock_py_attached(py)
        .unwrap_or_else(PoisonError::into_inner);
    let last = std::mem::replace(watch.callback(change), callback);
    if watch.changes.is_none() {
        let (changes, heard) = mpsc::channel();
        std::thread::Builder::new()
            .name("elasticrun-watch".into())
            .spawn(move || heard.into_iter().for_each(call))?;
        watch.changes = Some(changes);
    }
    drop(watch);
    drop(last);
    Ok(())
}

fn call((change, round): (Change, u64)) {
    Python::try_attach(|py| {
        let mut watch = WATCH
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner);
        let callback = watch
            .callback(change)
            .as_ref()
            .map(|callback| callback.clone_ref(py));
        drop(watch);
        if let Some(callback) = callback
            && let Err(error) = callback.call1(py, (round,))
        {
            error.write_unraisable(py, Some(callback.bind(py)));
        }
    });
}

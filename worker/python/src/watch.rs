//! Callbacks for the abort of a round.
//!
//! The SDK's thread hears of an abort and must not wait for the GIL; a thread of ours does.

use std::sync::{Mutex, PoisonError, mpsc};

use pyo3::{prelude::*, sync::MutexExt};

/// What to call, and the way to the thread that calls.
static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

#[derive(Debug)]
struct Watch {
    callback: Option<Py<PyAny>>,
    aborts: mpsc::Sender<u64>,
}

/// Tells the watcher that a round is aborted. On the SDK's thread; it waits for nobody who needs the GIL.
pub(crate) fn aborted(round: u64) {
    if let Some(watch) = &*WATCH.lock().unwrap_or_else(PoisonError::into_inner) {
        // The thread ends with the process only.
        let _ = watch.aborts.send(round);
    }
}

/// Calls `callback(round)` at once when a round of this process is aborted, on a thread of ours; None calls nobody.
/// There is one: what was given before is called no more.
#[pyfunction]
#[pyo3(signature = (callback))]
pub(crate) fn on_abort(py: Python<'_>, callback: Option<Py<PyAny>>) -> PyResult<()> {
    let mut watch = WATCH
        .lock_py_attached(py)
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(watch) = &mut *watch {
        watch.callback = callback;
        return Ok(());
    }
    let (aborts, heard) = mpsc::channel();
    std::thread::Builder::new()
        .name("elasticrun-watch".into())
        .spawn(move || heard.into_iter().for_each(call))?;
    *watch = Some(Watch { callback, aborts });
    Ok(())
}

fn call(round: u64) {
    Python::try_attach(|py| {
        let watch = WATCH
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner);
        let callback = watch.as_ref().and_then(|watch| {
            watch
                .callback
                .as_ref()
                .map(|callback| callback.clone_ref(py))
        });
        drop(watch);
        if let Some(callback) = callback
            && let Err(error) = callback.call1(py, (round,))
        {
            error.write_unraisable(py, Some(callback.bind(py)));
        }
    });
}

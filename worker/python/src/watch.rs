//! Callbacks for events of the round that happen while Python runs other code.
//!
//! Threads of the SDK report the events. They must not wait for the GIL, so a separate thread calls the callbacks.

use std::sync::{Mutex, PoisonError, mpsc};

use pyo3::{prelude::*, sync::MutexExt};

/// An event that a callback can be registered for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RoundEvent {
    /// The round is aborted.
    Aborted,
    /// The job asks all members of the round for their common boundary.
    Held,
}

/// The callbacks, and the channel to the thread that calls them.
static WATCH: Mutex<Watch> = Mutex::new(Watch {
    aborted: None,
    held: None,
    events: None,
});

#[derive(Debug)]
struct Watch {
    aborted: Option<Py<PyAny>>,
    held: Option<Py<PyAny>>,
    events: Option<mpsc::Sender<(RoundEvent, u64)>>,
}

impl Watch {
    fn callback(&mut self, event: RoundEvent) -> &mut Option<Py<PyAny>> {
        match event {
            RoundEvent::Aborted => &mut self.aborted,
            RoundEvent::Held => &mut self.held,
        }
    }
}

/// Queues an event for the callback thread. Runs on threads of the SDK and never waits for the GIL.
pub(crate) fn notify(event: RoundEvent, round: u64) {
    let watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(events) = &watch.events {
        // The callback thread lives as long as the process.
        let _ = events.send((event, round));
    }
}

/// Calls `callback(round)` on a separate thread as soon as a round of this process is aborted. Replaces the previous callback;
/// None removes it.
#[pyfunction]
#[pyo3(signature = (callback))]
pub(crate) fn on_abort(py: Python<'_>, callback: Option<Py<PyAny>>) -> PyResult<()> {
    watch(py, RoundEvent::Aborted, callback)
}

/// Registers the callback of an event, and starts the thread that calls it. Replaces the previous callback; None removes it.
pub(crate) fn watch(
    py: Python<'_>,
    event: RoundEvent,
    callback: Option<Py<PyAny>>,
) -> PyResult<()> {
    let mut watch = WATCH
        .lock_py_attached(py)
        .unwrap_or_else(PoisonError::into_inner);
    let last = std::mem::replace(watch.callback(event), callback);
    if watch.events.is_none() {
        let (events, receiver) = mpsc::channel();
        std::thread::Builder::new()
            .name("elasticrun-watch".into())
            .spawn(move || receiver.into_iter().for_each(call))?;
        watch.events = Some(events);
    }
    drop(watch);
    drop(last);
    Ok(())
}

fn call((event, round): (RoundEvent, u64)) {
    Python::try_attach(|py| {
        let mut watch = WATCH
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner);
        let callback = watch
            .callback(event)
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

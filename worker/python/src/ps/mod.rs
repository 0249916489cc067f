//! The parameter server: `elasticrun.ps`.
//!
//! # Invariants
//! - Arrays of Python are not copied. The `keep` object of a request keeps them alive until it is completed, or longer.
//! - A handler or callback is called on a thread of the node, which takes the GIL for it. So no thread that has the GIL waits for
//!   a thread of the node.

mod node;
mod request;
mod server;
mod simple;
mod worker;

use std::{
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use elasticrun_ps::{Array, DType, Error, dynamic};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
};

pub(crate) use node::PsNode;
pub(crate) use request::PsRequest;
pub(crate) use server::{PsServer, PsServerRequest};
pub(crate) use simple::PsSimpleApp;
pub(crate) use worker::PsWorker;

use crate::error;

/// Interval at which a wait checks for signals.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

/// Address and length of memory in bytes.
type Buffer = (usize, usize);

/// The exception for an error of the library.
fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Options(_) | Error::CustomerExists { .. } | Error::NoSuchNode(_) => "PsConfigError",
        Error::PortTaken { .. }
        | Error::Unreachable { .. }
        | Error::JoinRefused(_)
        | Error::Stranger { .. }
        | Error::StartTimedOut { .. } => "PsStartError",
        Error::NodeLost { .. } | Error::BarrierBroken { .. } => "PsNodeLost",
        Error::TimedOut { .. } | Error::BarrierTimedOut { .. } | Error::BackPressure { .. } => {
            "PsTimeout"
        }
        Error::Keys(_) | Error::Slices(_) | Error::NoSuchRequest(_) => "PsBadRequest",
        Error::Refused { .. } => "PsRefused",
        Error::Finalized => "PsFinalized",
        _ => "PsError",
    };
    error::exception(py, class, error.to_string())
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{seconds} s: {error}")))
}

/// Runs something that may block for long on a thread of its own, so that Ctrl-C ends the wait for it. It goes on then.
fn interruptible<R: Send + 'static>(
    py: Python<'_>,
    run: impl FnOnce() -> R + Send + 'static,
) -> PyResult<R> {
    let (send, receive) = mpsc::channel();
    thread::Builder::new()
        .name("elasticrun-ps".to_owned())
        .spawn(move || {
            // Nobody receives it after Ctrl-C.
            let _ = send.send(run());
        })?;
    let receive = Mutex::new(receive);
    loop {
        let received = py.detach(|| {
            let receive = receive.lock().unwrap_or_else(PoisonError::into_inner);
            receive.recv_timeout(SIGNAL_POLL)
        });
        match received {
            Ok(result) => return Ok(result),
            Err(mpsc::RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "a thread panicked: see its message",
                ));
            }
        }
    }
}

/// The number of whole elements in a buffer.
fn count((address, nbytes): Buffer, size: usize) -> PyResult<usize> {
    let aligned = address.is_multiple_of(size) && (address != 0 || nbytes == 0);
    match nbytes.is_multiple_of(size) && (aligned || nbytes == 0) {
        true => Ok(nbytes / size),
        false => Err(PyValueError::new_err(format!(
            "{nbytes} bytes at {address:#x}: no elements of {size} bytes"
        ))),
    }
}

/// Keys or lens. `keep` keeps them alive.
fn array<T: 'static + Send + Sync>(buffer: Buffer, keep: Py<PyAny>) -> PyResult<Array<T>> {
    match count(buffer, size_of::<T>())? {
        0 => Ok(Vec::new().into()),
        // SAFETY: `keep` keeps so many elements alive, and Python does not write them until the request is completed.
        count => Ok(unsafe {
            Array::from_foreign(std::ptr::with_exposed_provenance(buffer.0), count, keep)
        }),
    }
}

/// Values to send.
fn elements(dtype: DType, buffer: Buffer, keep: Py<PyAny>) -> PyResult<dynamic::Elements> {
    let count = count(buffer, dynamic::size_of(dtype))?;
    let address = std::ptr::with_exposed_provenance(buffer.0);
    // SAFETY: as for `array`.
    Ok(unsafe { dynamic::Elements::new(address, count, keep) })
}

/// Where values are received.
fn mut_elements(dtype: DType, buffer: Buffer, keep: Py<PyAny>) -> PyResult<dynamic::MutElements> {
    let count = count(buffer, dynamic::size_of(dtype))?;
    let address = std::ptr::with_exposed_provenance_mut(buffer.0);
    // SAFETY: as for `array`; Python does not read them either.
    Ok(unsafe { dynamic::MutElements::new(address, count, keep) })
}

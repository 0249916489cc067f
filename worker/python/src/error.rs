//! Errors of the SDK as exceptions of `elasticrun.errors`.

use elasticrun_worker::{Error, GroupError, Interrupt, store::Refused};
use pyo3::{prelude::*, sync::PyOnceLock, types::PyType};

/// An exception of `elasticrun.errors` by its name.
pub(crate) fn exception(py: Python<'_>, class: &str, message: impl Into<String>) -> PyErr {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = ERRORS.get_or_try_init(py, || {
        Ok::<_, PyErr>(PyModule::import(py, "elasticrun.errors")?.unbind())
    });
    let class = module.and_then(|module| {
        let class = module.bind(py).getattr(class)?;
        Ok(class.cast_into::<PyType>()?)
    });
    match class {
        Ok(class) => PyErr::from_type(class, (message.into(),)),
        Err(error) => error,
    }
}

/// The exception for an error of the SDK, with its causes in the text.
pub(crate) fn from_worker(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Interrupted(Interrupt::WorkersFailed) => "WorkersFailed",
        Error::Interrupted(Interrupt::HostsUpdated) => "HostsUpdated",
        Error::Removed => "Removed",
        Error::Stopped { .. } => "Stopped",
        Error::AgentLost { .. } => "AgentLost",
        Error::Collective(GroupError::Mismatch { .. }) | Error::StartMismatch(_) => {
            "CollectiveMismatch"
        }
        Error::Store(Refused::TimedOut { .. }) => "StoreTimeout",
        Error::Store(_) => "StoreError",
        Error::Forked => "ForkedError",
        Error::Save(_)
        | Error::Restore(_)
        | Error::Divided { .. }
        | Error::NotDivided { .. }
        | Error::NoReplicaGroups => "StateError",
        _ => "ElasticrunError",
    };
    let text = match error {
        Error::Interrupted(Interrupt::WorkersFailed) => WORKERS_FAILED.to_owned(),
        Error::Interrupted(Interrupt::HostsUpdated) => HOSTS_UPDATED.to_owned(),
        error => with_causes(error),
    };
    exception(py, class, text)
}

const WORKERS_FAILED: &str = "a worker of the round failed: let this error pass to elastic.run, which goes on from the newest commit";
const HOSTS_UPDATED: &str = "the hosts of the job change: let this error pass to elastic.run, which goes on in the next round";

/// The exception for a failed collective. `error` is the worker's classification of `cause`, and `name` the caller's name of
/// the operation.
pub(crate) fn from_collective(
    py: Python<'_>,
    cause: &GroupError,
    error: &Error,
    name: Option<&str>,
) -> PyErr {
    let named = |text: String| match name {
        Some(name) => format!("{name}: {text}"),
        None => text,
    };
    match cause {
        GroupError::TimedOut { .. } => exception(py, "CollectiveTimeout", named(cause.to_string())),
        GroupError::PeerLeft { rank } if error.interrupt() == Some(Interrupt::WorkersFailed) => {
            exception(py, "WorkerEnded", named(worker_ended(*rank)))
        }
        _ if error.interrupt().is_some() || error.is_stop() => from_worker(py, error),
        GroupError::Mismatch { .. } => {
            exception(py, "CollectiveMismatch", named(cause.to_string()))
        }
        _ => exception(py, "ElasticrunError", named(with_causes(error))),
    }
}

fn worker_ended(rank: u32) -> String {
    format!(
        "rank {rank} has ended or left its training, while this rank still calls collectives: make the same number of calls \
         on all ranks; for uneven data use ElasticSampler, join() of torch, or steps_per_epoch"
    )
}

/// The text of an error and of its causes.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

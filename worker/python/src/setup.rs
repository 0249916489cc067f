//! The steps from a joined round to the training function, as the core decides them.

use elasticrun_worker::{Hooks, SetupStep};
use pyo3::prelude::*;

use crate::{error, process::use_worker};

/// A step from a joined round to the training function.
#[pyclass(
    frozen,
    eq,
    hash,
    rename_all = "SCREAMING_SNAKE_CASE",
    name = "SetupStep",
    module = "elasticrun._native"
)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    FetchBase,
    RestoreNewest,
    Restore,
    Reset,
    RequireBase,
    SyncOwn,
    Sync,
    SyncFresh,
    LoadShards,
    SealFirst,
    Adapt,
    Train,
}

impl From<SetupStep> for Step {
    fn from(step: SetupStep) -> Self {
        match step {
            SetupStep::FetchBase => Self::FetchBase,
            SetupStep::RestoreNewest => Self::RestoreNewest,
            SetupStep::Restore => Self::Restore,
            SetupStep::Reset => Self::Reset,
            SetupStep::RequireBase => Self::RequireBase,
            SetupStep::SyncOwn => Self::SyncOwn,
            SetupStep::Sync { fresh: false } => Self::Sync,
            SetupStep::Sync { fresh: true } => Self::SyncFresh,
            SetupStep::LoadShards => Self::LoadShards,
            SetupStep::SealFirst => Self::SealFirst,
            SetupStep::Adapt => Self::Adapt,
            SetupStep::Train => Self::Train,
        }
    }
}

/// The steps from here to the training function, in order. The arguments tell which parts of the start of a round are user
/// code.
#[pyfunction]
#[pyo3(signature = (callbacks, restore, sync, divided = false))]
pub(crate) fn setup(
    py: Python<'_>,
    callbacks: bool,
    restore: bool,
    sync: bool,
    divided: bool,
) -> PyResult<Vec<Step>> {
    let hooks = Hooks {
        callbacks,
        restore,
        sync,
        divided,
    };
    use_worker(py, |worker| {
        let steps = worker
            .setup(hooks)
            .map_err(|error| error::from_worker(py, &error))?;
        Ok(steps.into_iter().map(Step::from).collect())
    })
}

/// Notes that another state may become the live one.
#[pyfunction]
pub(crate) fn adopt_state(py: Python<'_>) -> PyResult<()> {
    use_worker(py, |worker| {
        worker.adopt_state();
        Ok(())
    })
}

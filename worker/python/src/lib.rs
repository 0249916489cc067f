//! `elasticrun._native`: the Rust SDK as Python calls it.
//!
//! # Theory of operation
//! A process is a worker once, so there is one [`Worker`](elasticrun_worker::Worker) for it (`process`).
//! Its training thread joins rounds, syncs, commits and comes to boundaries. The collectives of a round
//! run in the order of their submission on a thread of ours, the [`lane`], so that they overlap with what
//! Python does; a [`work::Work`] tells when one is done, and [`callbacks`] are called on threads of their own.
//!
//! # Invariants
//! - P1 whatever may block runs without the GIL, and the waits of the main thread see Ctrl-C.
//! - P2 nothing is started and no thread exists before `init`, so forking before it is safe.
//! - P3 memory that a collective uses is kept alive by `keep` until it is done.
//!
//! The Python side of each call, with its types, is in `_native.pyi`.

mod call;
mod callbacks;
mod data;
mod dtype;
mod error;
mod keys;
mod lane;
mod operations;
mod payload;
mod process;
mod sampler;
mod setup;
mod watch;
mod work;

/// The native part of elasticrun.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        call::call_key,
        data::{Batch, Column, Data, Image, PlanPreview, columns, images, note, plan},
        keys::Keys,
        lane::Lane,
        process::{
            Standing, boundary, fail, fetch_base, finish, host_at_risk, in_round, init,
            initialized, job_keys, join, lacks_base, lane, leave_here, newest, refuse_commits,
            round_keys, seal, shutdown, sync, training, world,
        },
        sampler::Sampler,
        setup::{Step, adopt_state, setup},
        watch::{on_abort, on_hosts_updated},
        work::Work,
    };

    #[pymodule_init]
    fn begin(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::plant_mutant()
    }
}

/// Plants the mistake that the environment names: `test_mutants.py`.
#[cfg(feature = "mutants")]
fn plant_mutant() -> pyo3::PyResult<()> {
    let Ok(name) = std::env::var("ELASTICRUN_MUTANT") else {
        return Ok(());
    };
    match elasticrun_core::mutant::plant_everywhere(&name) {
        true => Ok(()),
        false => Err(pyo3::exceptions::PyValueError::new_err(format!(
            "ELASTICRUN_MUTANT={name}: no such mistake"
        ))),
    }
}

/// What is shipped has no mistakes to plant.
#[cfg(not(feature = "mutants"))]
const fn plant_mutant() -> pyo3::PyResult<()> {
    Ok(())
}

//! `elasticrun._native`: the Rust SDK as Python calls it.
//!
//! # Theory of operation
//! A process is one worker, so `process` holds one [`Worker`](elasticrun_worker::Worker). `round` and
//! `commits` call it.
//! The training thread joins rounds, syncs, commits and reaches boundaries. The collectives of a round
//! run in the order of their submission on the thread of a [`collective_queue`], so that they overlap with what
//! Python does. A [`work::Work`] is the handle of one of them. [`callbacks`] run on separate threads.
//!
//! # Invariants
//! - P1 Calls that may block run without the GIL, and waits of the main thread react to Ctrl-C.
//! - P2 No thread exists before `init`, so a fork before it is safe.
//! - P3 The `keep` object of a collective keeps its memory alive until it is done.
//!
//! The Python side of each call, with its types, is in `_native.pyi`.

mod call;
mod callbacks;
mod collective_queue;
mod commits;
mod data;
mod divided_base;
mod dtype;
mod error;
mod keys;
mod local_shards;
mod open_shard;
mod operations;
mod page_pool;
mod payload;
mod process;
mod ps;
mod rendezvous;
mod requests;
mod round;
mod sampler;
mod setup;
mod shards;
mod watch;
mod work;
mod world;

/// The native part of elasticrun.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        call::call_identity,
        call::memory_file,
        collective_queue::CollectiveQueue,
        commits::{
            boundary, commit, lacks_base, leave_at_boundary, refuse_commits, with_newest_commit,
        },
        data::{
            Batch, Column, Data, Image, Plain, PlanPreview, PyParts, columns, images, note, plan,
        },
        divided_base::PyBase,
        keys::Keys,
        open_shard::{PyOpenShard, open_shard},
        page_pool::PyPagePool,
        process::{fail, finish, in_round, init, shutdown, world},
        ps::{PsNode, PsRequest, PsServer, PsServerRequest, PsSimpleApp, PsWorker},
        rendezvous::{
            RendezvousHolder, RendezvousNode, RendezvousServer, rendezvous_endpoint,
            rendezvous_etcd_members, rendezvous_is_local, rendezvous_is_loopback, rendezvous_keys,
        },
        round::{
            collective_queue, fetch_base, host_at_risk, job_keys, join, on_hosts_updated, park,
            resume, round_keys, sync, training,
        },
        sampler::Sampler,
        setup::{Step, adopt_state, setup},
        shards::{
            PyLayout, all_sealed, load_shards, loaded_shards, memory_for_commits,
            provide_for_commit, provide_for_commits,
        },
        watch::on_abort,
        work::Work,
        world::WorldInfo,
    };

    #[pymodule_init]
    fn begin(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::plant_mutant()
    }
}

/// Plants the mutant that the environment variable names. Used by `test_mutants.py`.
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

/// A shipped module contains no mutants.
#[cfg(not(feature = "mutants"))]
const fn plant_mutant() -> pyo3::PyResult<()> {
    Ok(())
}

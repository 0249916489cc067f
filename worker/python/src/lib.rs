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
mod order;
mod payload;
mod process;
mod watch;
mod work;

/// The native part of elasticrun.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        call::call_key,
        data::{Batch, Column, Data, Forecast, Image, columns, images, note, plan},
        keys::Keys,
        lane::Lane,
        order::Order,
        process::{
            Standing, boundary, fail, finish, host_at_risk, in_round, init, initialized, job_keys,
            join, lacks_base, lane, leave_here, newest, reach_base, refuse_commits, round_keys,
            seal, shutdown, sync, training, world,
        },
        watch::{on_abort, on_hosts_updated},
        work::Work,
    };
}

//! The SDK of a training process: state, commits, interrupts and collectives of an elastic job.
//!
//! ```no_run
//! use elasticrun_worker::{Error, Op, run};
//!
//! let mut weights = vec![0.0_f32; 1000];
//! run(&mut weights, |session, weights| {
//!     for _step in 0..100 {
//!         let mut gradient = vec![0.1; weights.len()];
//!         session.allreduce(&mut gradient, Op::Average)?;
//!         for (weight, slope) in weights.iter_mut().zip(&gradient) {
//!             *weight -= 0.01 * slope;
//!         }
//!         session.commit(weights)?;
//!     }
//!     Ok::<_, Error>(())
//! })?;
//! # Ok::<_, Error>(())
//! ```
//!
//! # Theory of operation
//! [`run`] calls the training function once for each round that this process is a member of. Before
//! each call, all members hold the same state: that of the round's base, the newest complete commit
//! of the job. Calls of [`Session`] fail once the round is over. Pass their errors on with `?`, and
//! [`run`] takes the process to the next round.
//!
//! - A failure of another worker ends the round at any point ([`Interrupt::WorkersFailed`]). The state
//!   goes back to the base, so at most the work since the last [`Session::commit`] is repeated.
//! - A planned change ends it in all members at the same boundary ([`Interrupt::HostsUpdated`]). That
//!   boundary is a commit, so no work is repeated. A boundary is a call of [`Session::commit`] or
//!   [`Session::check_host_updates`]. It costs no message.
//!
//! The process talks to the agent of its host, which started it, over a Unix socket and through
//! memory that both map and that outlives the process. One thread of the SDK reads the socket and
//! sends heartbeats. No thread is started before the first [`run`], so forking before it is safe.
//!
//! Without an agent (a script run by hand), this is a single process: a world of one worker.
//!
//! # Invariants
//! - W1 Interrupts are level-triggered: a call sees an interrupt that came before it.
//! - W2 Training continues from the state of one complete commit.
//! - W3 A commit that returned is in the agent's memory. It survives this process.
//! - W4 A process may still make its next commit after the round has ended elsewhere: its state is
//!   complete, and the next round may begin with it. The boundary after the commit reports the end. Once
//!   an operation of this process was cut short, or a call has reported the end, commits are refused,
//!   since the state may depend on incomplete results.
//!
//! # Not promised
//! That all workers fail at the same call when a round is aborted. The contents of the state after a
//! failure has interrupted the training function. They are restored before its next call.

#![forbid(unsafe_code)]

mod agent;
mod call_identity;
mod error;
mod memory;
mod round;
mod run;
mod sched_boost;
mod standalone;

pub mod sampler;
mod session;
pub mod state;
pub mod store;
pub mod worker;
mod world;

/// The examples of the guide compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/rust.md")]
mod guide {}

pub use call_identity::call_identity;
pub use elasticrun_collectives::{DType, Element, Error as GroupError, Group, Observer, Op};
pub use elasticrun_core::worker::{Hooks, SetupStep};
pub use elasticrun_protocol::{
    CommitId, DriverEpoch, Generation, LocalRank, Process, Rank, Round, Shard,
    control::{Seat, StopReason},
};
pub use elasticrun_shm::{
    Copying, PagePool, Part, available_memory,
    commit::{BufferPlace, Place},
    copy, copy_bytes,
};
pub use error::{Error, Interrupt};
pub use round::{DividedBase, Route, ShardCopy};
pub use run::run;

pub use sampler::ElasticSampler;
pub use session::Session;
pub use state::State;
pub use store::Store;
pub use worker::{FailureOrigin, OpenShard, Worker};
pub use world::World;

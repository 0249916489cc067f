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
//! [`run`] calls the training function once for each round that this process is a member of. Before each
//! call all members hold the same state: that of the round's base, the newest complete commit of the job.
//! Within a round a call of [`Session`] fails once the round is over; pass its error on with `?`, and
//! [`run`] takes the process to the next round.
//!
//! - A failure elsewhere ends the round anywhere ([`Interrupt::WorkersFailed`]); the state goes back to the
//!   base, so at most the work since the last [`Session::commit`] is done again.
//! - A planned change ends it in all members at the same boundary ([`Interrupt::HostsUpdated`]), which is a
//!   commit; nothing is done again. A boundary is a call of [`Session::commit`] or
//!   [`Session::check_host_updates`]; it costs no message.
//!
//! The process talks to the agent of its host, which started it: over a Unix socket, and through memory
//! that both map and that outlives the process. One thread of the SDK listens there and gives signs of
//! life; nothing is started before the first [`run`], so forking before it is safe.
//!
//! Without an agent (a script run by hand) the process is a world of one worker.
//!
//! # Invariants
//! - W1 interrupts are level-triggered: what came before a call is seen by the call.
//! - W2 the state that training continues from is that of one complete commit, whole.
//! - W3 a commit that returned is in the agent's memory; it survives this process.
//! - W4 a round that is over elsewhere takes the commit that a process is on its way to: what it computed is whole, and
//!   the next round may begin with it. The boundary behind the commit says that the round is over. Once an operation of
//!   this process was cut short, or a call has said that the round is over, a commit is refused: its state may rest on half
//!   of something.
//!
//! # Not promised
//! That all workers fail at the same call when a round is aborted. What the state holds after a call of
//! the training function was interrupted by a failure; it is restored before the next one.

mod agent;
mod alone;
mod call_key;
mod error;
mod hurry;
mod memory;
mod round;
mod run;

pub mod sampler;
mod session;
pub mod state;
pub mod store;
pub mod worker;
mod world;

pub use call_key::call_key;
pub use elasticrun_collectives::{DType, Element, Error as GroupError, Group, Observer, Op};
pub use elasticrun_core::worker::{Hooks, SetupStep};
pub use elasticrun_protocol::{
    CommitId, DriverEpoch, Generation, LocalRank, Process, Rank, Round, control::StopReason,
};
pub use error::{Error, Interrupt};
pub use run::run;

pub use sampler::ElasticSampler;
pub use session::Session;
pub use state::State;
pub use store::Store;
pub use worker::{Through, Worker};
pub use world::World;

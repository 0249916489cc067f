//! The machine of a worker process: what it says to its agent, which commits it makes, and what its rounds begin with.
//!
//! ```text
//!               join              Connect                     sync           train
//!   Outside ------------> Waiting --------> Member: connected ----> synced -------> commits, boundaries
//!      ^                                       |
//!      +--------------- leave -----------------+   an abort, a lost peer, the common boundary
//! ```
//!
//! Two threads use it. The thread of the SDK hands in what the agent says ([`Machine::step`]: an event in, commands
//! out). The training thread asks, and is answered at once: [`Machine::join`], [`Machine::commit`], [`Machine::sync`] and
//! their like are requests, and their answers say what to do next. [`Join::Wait`] means: ask again after the next event.
//! So nothing depends on which of the two threads came first.
//!
//! # Invariants
//! - **W1** Interrupts are level-triggered: a call sees what came before it.
//! - **W2** The state that training continues from is that of one complete commit ([`sync`]).
//! - **W4** A round that is over elsewhere takes the commit that this process is on its way to. Once an operation of this
//!   process was cut short, or a call has said that the round is over, commits of that round are refused.
//! - **W5** Reset callbacks of rank 0 see the base of the round, and what they change is what all members begin with
//!   ([`SetupStep`]).
//! - **R13** A worker that trains has seen the base of its round ([`LiveState`]).
//!
//! Not promised: that the machine knows of an abort as soon as its agent has set the word for it in the shared page. The
//! boundary reads that word.

mod event;
mod fingerprint;
mod live_state;
mod machine;
mod request;
mod setup;
mod signals;
mod sync;

pub use event::{BaseSource, Command, Ended, Event, Interrupt, Over, RoundId, RoundStart};
pub use fingerprint::{Fingerprint, Offer};
pub use live_state::LiveState;
pub use machine::Machine;
pub use request::{Announcement, Commits, Departure, Failure, Join};
pub use setup::{Hooks, SetupStep};
pub use sync::{Action, Outcome, SyncError};

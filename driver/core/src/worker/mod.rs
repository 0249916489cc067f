//! The state machine of a worker process: its messages to the agent, its commits, and the start of its rounds.
//!
//! ```text
//!               join              Connect                     sync           train
//!   Outside ------------> Waiting --------> Member: connected ----> synced -------> commits, boundaries
//!      ^                                       |
//!      +--------------- leave -----------------+   an abort, a lost peer, the common boundary
//! ```
//!
//! Two threads use it. The thread of the SDK passes in the messages of the agent ([`Machine::step`]: an event in,
//! commands out). The training thread makes requests, which return at once: [`Machine::join`], [`Machine::commit`],
//! [`Machine::sync`] and others return the next action. [`Join::Wait`] means: repeat the request after the next event.
//! So the result does not depend on which thread comes first.
//!
//! # Invariants
//! - **W1** Interrupts are level-triggered: a call observes everything that came before it.
//! - **W2** Training continues from the state of one complete commit ([`sync`]).
//! - **W4** A round that is over elsewhere still accepts the commit that this process is on its way to. Commits of that
//!   round are refused once an operation of this process was cut short, or a call has returned that the round is over.
//! - **W5** Reset callbacks of rank 0 see the base of the round. All members begin with the changes that the callbacks
//!   make ([`SetupStep`]).
//! - **R13** A worker that trains has seen the base of its round ([`LiveState`]).
//!
//! Not promised: that the machine knows of an abort as soon as its agent has set the word for it in the shared page.
//! The boundary reads that word.

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

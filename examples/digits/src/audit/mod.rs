//! Proves that each row was used exactly once per epoch, through all changes of the world.
//!
//! Each worker process writes a file of its own ([`Journal`]): an entry at the start of each round,
//! and an entry before each step with the commit that the step will be part of. Afterwards,
//! [`check`] counts the entries of valid commits. A commit that is newer than the base of a round
//! started later is void, and its rows are used again.
//!
//! The entry comes before the step, because a worker may die in a step after others have received
//! its gradients.

mod check;
mod entry;
mod journal;

pub use check::{Error, Summary, check};
pub use journal::Journal;

//! Proof that each row was used exactly once an epoch, through all changes of the world.
//!
//! Each worker process writes a file of its own ([`Journal`]): a line at the start of each round, and a line
//! before each step with the commit that the step will be part of. Afterwards ([`check`]) a line counts if its
//! commit does: a commit that is newer than the base of a round started later is void, and its rows are
//! used again.
//!
//! The line comes before the step because a worker may die in it when others have its gradients already.

mod check;
mod journal;
mod line;

pub use check::{Error, Summary, check};
pub use journal::Journal;

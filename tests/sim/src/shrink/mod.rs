//! Shrinks the schedule of a seed that violates an invariant.
//!
//! A [`Simplification`] takes hardships away from the scenario of a seed: planned faults, and amounts such as repeated
//! messages or steps. It never adds one, and no amount falls below the least that a seed draws. So a simplified scenario
//! is one that a seed could have drawn, and its invariants hold. [`shrink`] searches for a simplification with which the
//! same invariant is violated, and from which no single hardship can be taken away.
//!
//! | file | contents |
//! |---|---|
//! | `amount` | the amounts of a scenario that can be lessened |
//! | `simplification` | which faults and amounts remain: parse, display, apply |
//! | `drawn` | the faults and amounts that a seed has drawn, and whether a simplification fits them |
//! | `search` | the search, over any function that runs a simplification |
//! | `shrunk` | the result, as text |
//!
//! Not promised: the smallest schedule. Random details of a run, such as delays, are drawn in the order of its events, so
//! the loss of one fault changes the details behind it. A violation that needs a rare delay may vanish with any fault.

mod amount;
mod drawn;
mod search;
mod shrunk;
mod simplification;
#[cfg(test)]
mod tests;

pub use amount::Amount;
pub use drawn::{Drawn, Error};
pub use search::{Progress, shrink};
pub use shrunk::Shrunk;
pub use simplification::{ParseError, Simplification};

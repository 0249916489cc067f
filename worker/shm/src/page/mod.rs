//! The page that an agent shares with one worker process.
//!
//! [`elasticrun_core::hold`] defines the meaning of its words.
//!
//! # The hold
//! All members of a round must leave it at the same boundary, though no member asks the others. The agent writes the word
//! `hold` and then reads the word `count`. The worker, at a boundary, writes `count` and then reads `hold`. All four
//! accesses are sequentially consistent. So of a concurrent hold and boundary at least one side sees the other:
//!
//! - H1 If the worker did not see the hold at boundary c, the agent's count is at least c.
//! - H2 Hence no worker passes a boundary above the count that its agent read, unless K is set.
//! - H3 K is the largest count of all members + 1. So K is at or ahead of every member's next stop: a worker that waits
//!   below K continues, one that waits at K leaves, and one that reaches K later leaves there.
//! - H4 Words carry their round. A hold or a K of one round never stops a worker in another one, and a count of another
//!   round reads as 0.
//! - H5 A waiting worker continues when the hold is withdrawn. It ends its round when the round is aborted, by the agent
//!   or by a thread of the worker.
//!
//! # The lease
//! The agent extends the worker's lease whenever its driver has answered. A worker whose lease has ended passes no
//! boundary and makes no commit. The driver may have begun another round elsewhere, and the agent, which would end this
//! round, may be suspended (R11).
//!
//! # Ranges
//! Tags are the low 20 bits of the round. A word left from exactly 2^20 rounds ago would be taken for a current one.
//! Counts have 44 bits and saturate, after 200 days with a boundary each microsecond. Then holds do not work any more,
//! but aborts do.
//!
//! # Not promised
//! The page does not notify the agent of changed phases, beats and counters. Urgent changes are also sent over the
//! socket. A worker that writes invalid values harms its own round only.

mod agent;
mod layout;
#[cfg(test)]
mod model;
mod worker;

pub use agent::AgentPage;
pub use layout::{Error, Phase};
pub use worker::{BoundaryCounter, BoundaryOutcome, WorkerPage};

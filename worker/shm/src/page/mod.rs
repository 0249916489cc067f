//! The page that an agent shares with one worker process.
//!
//! What its words mean is decided in [`elasticrun_core::hold`].
//!
//! # The hold
//! All members of a round must leave it at the same boundary, though none of them asks the others. The
//! agent writes the word `hold` and then reads the word `count`; the worker, at a boundary, writes
//! `count` and then reads `hold`. All four are sequentially consistent, so of a hold and a boundary that
//! meet at least one side sees the other:
//!
//! - H1 if the worker did not see the hold at boundary c, the agent's count is at least c;
//! - H2 hence no worker passes a boundary above the count that its agent read, unless it is told K;
//! - H3 K = largest count of all members + 1 is thus ahead of or at everybody's next stop: who waits at a
//!   boundary below K runs on, who waits at K leaves, who comes to K later leaves there;
//! - H4 words carry their round: a hold or a K of one round never stops a worker in another one, and a
//!   count of another round reads as 0;
//! - H5 a waiting worker runs on when the hold is withdrawn, and ends its round when that is aborted, by
//!   the agent or by a thread of its own.
//!
//! # The lease
//! The agent writes until when the worker may go on, whenever its driver has answered. A worker whose lease is over passes no
//! boundary and commits nothing: the driver may have begun another round elsewhere, and the agent, which would end this one,
//! may stand still (R11).
//!
//! # Ranges
//! Tags are the low 20 bits of the round; a word left over from exactly 2^20 rounds ago would be taken
//! for a new one. Counts have 44 bits and stick at the end of them, which is 200 days of a boundary each
//! microsecond; a hold does not work then, an abort does.
//!
//! # Not promised
//! The agent reads phases, beats and counters without being told of a change; who must know at once
//! gets a message over the socket. A worker that writes nonsense harms its own round only.

mod agent;
mod layout;
#[cfg(test)]
mod model;
mod worker;

pub use agent::AgentPage;
pub use layout::{Error, Phase};
pub use worker::{AtBoundary, InRound, WorkerPage};

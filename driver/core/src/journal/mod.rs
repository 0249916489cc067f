//! The journal: what a later driver of a run needs to know of the job, as typed records.
//!
//! [`Job::journal`](crate::Job::journal) returns the records that have changed since its last call. The shell writes them in
//! that order, without waiting for the disk, and a later driver begins with [`Job::resume`](crate::Job::resume). The newest
//! record of each key counts, so the size of a journal depends on the number of hosts and not on the length of the job.
//!
//! | state | record | without it |
//! |---|---|---|
//! | last round planned, rounds started, restarts used | [`Progress`] | a number could repeat; [`ROUND_GAP`] covers lost records |
//! | kind of workers, first success | [`Progress`] | a script would be taken for a worker, a round would follow a success |
//! | bases of started rounds | [`Record::Bases`] | a void commit could become a base |
//! | order of arrival, drains | [`HostEntry`] | ranks would move, a host that goes away would be used |
//! | starts of slots, lost memory | [`SlotsEntry`] | a new worker could be taken for an old one |
//! | members of the last round, and how they ended | [`MembersEntry`] | a success would be forgotten |
//! | failures and cooldowns | [`DomainEntry`] | a host that failed would be used again, and fail again |
//! | failures wherever workers run | [`Relapses`](crate::relapses::Relapses) | the verdict would need two more rounds |
//! | durable commit of a former run that was loaded | [`Record::Former`] | the run could continue from two of them |
//! | first failure | [`FailuresEntry`] | the last line would name a later failure |
//!
//! Agents report everything else when they connect: their processes, the round that trains and its base. Sources repeat
//! their hosts, and a shortage is measured anew.
//!
//! # Invariants
//! - S1 Records are written behind. A killed driver may lose the newest ones, and what is left is an earlier state of all
//!   records together. No decision is wrong because of that: agents report rounds and starts that the records lack.
//! - S2 The clock of the job does not survive. A record holds the rest of a time, and when it was written by the wall clock
//!   ([`Record::stamp`], [`Record::age`]).
//! - S3 The numbers of rounds grow over all drivers of a run.

mod changed;
mod entries;
mod saved;

pub(crate) use changed::Changed;
pub use entries::{
    Applied, Change, DomainEntry, DrainEntry, FailuresEntry, HostEntry, MemberEntry, MembersEntry,
    OutEntry, Progress, Record, SlotsEntry,
};
pub use saved::Saved;

/// How many numbers of rounds a resumed job leaves unused for each driver since that of the last record: more than a driver
/// can plan while its last records are on their way to the disk (S3).
pub const ROUND_GAP: u64 = 100;

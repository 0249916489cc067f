//! The pure core of elasticrun: what a job decides, without a clock, a socket or a random source.
//!
//! The main loop of the job is [`Job::step`]: an [`Event`] in, [`Command`]s out, in virtual time. An agent
//! decides by [`agent::Machine`] in the same shape, a worker by [`worker::Machine`]. Shells fold the world into events and execute commands;
//! nothing else decides anything. A run is a function of its events, so a seed replays it.
//!
//! | machine | decides |
//! |---|---|
//! | [`sources::Sources`] | which hosts there are, and how many slots each has, by several sources and the agents |
//! | [`hosts::HostSet`] | which of them are used, in which order |
//! | [`blacklist::Blacklist`] | what failed, and when it may be used again |
//! | [`waitlist::WaitList`] | who waits at `run()`, and when a growth is ripe |
//! | [`assignment`] | which worker gets which rank |
//! | [`placement::Placement`] | local and cross ranks where agents share a machine, and which attempt of a task stays |
//! | [`rounds::Rounds`] | plan, ready, start, hold, abort |
//! | [`groups::Groups`] | when workers without the SDK are started together |
//! | [`lineage::Lineage`] | which commits are still part of the history |
//! | [`worker::Machine`] | in a worker: joining, commits, leaving, and what a round begins with |
//! | [`hold`] | in a worker: what a boundary says |
//! | [`registry::Registry`] | how the members of the last round ended |
//! | [`budgets::Budgets`] | resets and restarts |
//! | [`results::Results`] | the outcome |
//! | [`relapses::Relapses`] | whether it is the program that fails, wherever it runs |
//! | [`lease::Lease`] | how long a silent agent is waited for, and its workers train |
//! | [`RunningTime`] | which time counts: not that in which the driver stood still |
//! | [`store::Store`] | the key-value store of the workers; beside the job, not part of it |
//! | [`fleet::Fleet`] | no decision: agents and processes as observed |
//!
//! # Invariants
//! Numbered as in the design; the simulation has a file for each, code and tests cite the number.
//! - **R1** ranks of a started round are 0..n-1, each once; min_np <= n <= max_np.
//! - **R2** a survivor (a worker that has trained in the round before) keeps its (host, local_rank); hosts keep their
//!   order of arrival behind the host of rank 0; who was rank 0 of a round is rank 0 of the next one that starts with it, else
//!   rank 0 is a survivor whenever there is one. It is brought to the base if others have committed once more.
//! - **R3** no event of an older round, driver epoch or generation changes anything.
//! - **R4** a slot has at most one live worker process.
//! - **R5** a round that starts has no worker on a host that was out when start was sent.
//! - **R6** notification is level-triggered: a change reaches a worker however late it registers.
//! - **R7** a row that is committed and not void is committed once per epoch; at its end all are: `elasticrun_ledger`.
//! - **R8** model state and ledger that a worker resumes from are of the same copy of the same commit: `elasticrun_ledger`.
//! - **R9** if faults stop and enough workers can be there, the job ends; if not, at the elastic timeout.
//! - **R10** a job ends in exactly one outcome.
//! - **R11** no two rounds of one run train at the same time.
//! - **R12** the base of a started round is the newest complete commit that any reachable agent held.
//! - **R13** a worker that trains has seen the base of its round: [`worker::LiveState`].

pub mod agent;
pub mod assignment;
pub mod blacklist;
pub mod budgets;
mod event;
pub mod fleet;
pub mod groups;
pub mod hold;
pub mod hosts;
mod job;
pub mod lease;
pub mod lineage;
#[doc(hidden)]
pub mod mutant;
pub mod placement;
pub mod random;
pub mod registry;
pub mod relapses;
pub mod results;
pub mod rounds;
mod running_time;
mod settings;
pub mod sources;
pub mod store;
pub mod suspicion;
mod time;
pub mod waitlist;
pub mod worker;

pub use event::{AgentConnected, Command, Decision, Departure, Event, Refusal, Rejected, Request};
pub use job::Job;
pub use running_time::RunningTime;
pub use settings::{Cooldown, FailureDomain, RestartMode, Settings};
pub use time::Time;

//! The pure core of elasticrun: all decisions of a job, without a clock, a socket or a random source.
//!
//! The job is [`Job`]: an [`Event`] in, [`Command`]s out, in virtual time. The driver calls [`Job::receive`] for each
//! event and [`Job::settle`] once for all events that have arrived together: they are planned for once. [`Job::step`]
//! does both for a single event.
//!
//! An agent decides by [`agent::Machine`], a worker by [`worker::Machine`]; both have the same shape. Shells turn I/O
//! into events and execute commands. They decide nothing. A run is a function of its events, so a seed replays it.
//!
//! | machine | decides |
//! |---|---|
//! | [`sources::Sources`] | which hosts exist, and how many slots each has, from several sources and the agents |
//! | [`hosts::HostSet`] | which hosts are used, and in which order |
//! | [`blacklist::Blacklist`] | what failed, and when it may be used again |
//! | [`waitlist::WaitList`] | which workers wait at `run()`, and when a growth is due |
//! | [`assignment`] | which worker gets which rank |
//! | [`placement::Placement`] | local and cross ranks where agents share a machine, and which attempt of a task stays |
//! | [`rounds::Rounds`] | plan, ready, start, hold, abort |
//! | [`groups::Groups`] | when workers without the SDK are started together |
//! | [`lineage::Lineage`] | which commits are still part of the history |
//! | [`worker::Machine`] | in a worker: joining, commits, leaving, and the state with which a round begins |
//! | [`hold`] | in a worker: whether it continues, waits or leaves at a boundary |
//! | [`registry::Registry`] | how the members of the last round ended |
//! | [`budgets::Budgets`] | resets and restarts |
//! | [`results::Results`] | the outcome |
//! | [`suspicion::Suspicion`] | which host is at fault if workers cannot reach each other |
//! | [`relapses::Relapses`] | whether the program itself fails, wherever it runs |
//! | [`lease::Lease`] | how long the driver waits for a silent agent, and how long the agent's workers train |
//! | [`RunningTime`] | which time counts: time in which the driver stood still does not |
//! | [`rendezvous::Machine`] | in a node without a driver: which nodes form a round, in the manner of PyTorch |
//! | [`store::Store`] | the key-value store of the workers, which is not part of the job |
//! | [`fleet::Fleet`] | nothing: it records agents and processes as observed |
//!
//! # Invariants
//! The design numbers the invariants. The simulation has a file for each; code and tests cite the number.
//! - **R1** The ranks of a started round are 0..n-1, each once; min_np <= n <= max_np.
//! - **R2** A survivor (a worker that has trained in the previous round) keeps its (host, local_rank). Hosts keep their
//!   order of arrival behind the host of rank 0. The worker with rank 0 of a round has rank 0 in the next round that
//!   starts with it. Without it, rank 0 is a survivor whenever there is one. Rank 0 is brought to the base if other
//!   workers have committed once more.
//! - **R3** No event of an older round, driver epoch or generation changes anything.
//! - **R4** A slot has at most one live worker process.
//! - **R5** A round that starts has no worker on a host that was out when the start was sent. A draining host is out,
//!   unless fewer than min_np workers are on other hosts and its time is not almost over.
//! - **R6** Notification is level-triggered: a change reaches a worker however late it registers.
//! - **R7** A row that is committed and not void is committed once per epoch; at the end of the epoch all rows are:
//!   `elasticrun_ledger`.
//! - **R8** The model state and the ledger from which a worker resumes are of the same copy of the same commit:
//!   `elasticrun_ledger`.
//! - **R9** If faults stop and enough workers are possible, the job completes; otherwise it ends at the elastic timeout.
//! - **R10** A job ends in exactly one outcome.
//! - **R11** No two rounds of one run train at the same time.
//! - **R12** The base of a started round is the newest complete commit that reachable agents held: of a divided state, all
//!   of its shards.
//! - **R13** A worker that trains has seen the base of its round: [`worker::LiveState`].
//! - **R14** A worker of a divided state begins with all shards of one commit, of one layout, each from a holder of that
//!   shard, and trains only after all members have sealed theirs: [`completeness`], [`worker::SetupStep`].
//! - **R15** No worker of a divided state gives up a shard of the newest complete commit.
//! - **R16** Once the copies of the shards of a commit are complete, the loss of K machines leaves all of them, until newer ones are
//!   or each shard is on more than K machines without copies: [`shard_keepers`].
//! - **R18** A round has whole replica groups, and each group has each shard once: [`seats`].
//! - **R19** A survivor keeps its shard if it can, and a replica group of survivors goes on as it is: [`seats`].
//! - **R20** A parameter server is started once, runs while the job wants it, and does not outlive its agent: [`Settings::servers`].

#![forbid(unsafe_code)]

pub mod agent;
pub mod assignment;
pub mod blacklist;
pub mod budgets;
pub mod completeness;
mod event;
pub mod fleet;
pub mod groups;
pub mod hold;
pub mod hosts;
mod job;
pub mod journal;
pub mod lease;
pub mod lineage;
#[doc(hidden)]
pub mod mutant;
pub mod placement;
pub mod random;
pub mod registry;
pub mod relapses;
pub mod rendezvous;
pub mod results;
pub mod rounds;
mod running_time;
pub mod seats;
mod settings;
mod shard_keepers;
pub mod sources;
pub mod store;
pub mod suspicion;
mod time;
pub mod waitlist;
pub mod worker;

pub use event::{AgentConnected, Command, Decision, Departure, Event, Refusal, Rejected, Request};
pub use job::Job;
pub use running_time::RunningTime;
pub use settings::{Cooldown, FailureDomain, ReplicaGroupSize, RestartMode, Settings};
pub use time::Time;

//! The messages between driver and agent after the handshake.
//!
//! Fencing: a command carries the driver's epoch, a message about a round its number, and a message about a worker its
//! [`Process`](crate::Process) (slot and start). Stale messages are rejected with a typed reason, and a repeated message changes
//! nothing (invariant R3). Fields are only ever added; unknown ones are ignored.

mod adoption;
mod command;
mod cut;
mod durable;
mod exit;
mod last_will;
mod memory;
mod notice;
mod output;
mod preload;
mod registration;
mod replica;
mod report;
mod start;

pub use adoption::{AdoptedPhase, AdoptedRound, AdoptedWorker, Adoption};
pub use command::{
    AgentCommand, ParameterServers, Place, ProbeHost, Restarts, Setup, Spawn, StopReason, ToAgent,
};
pub use cut::{Cut, CutShard, ShardCopy};
pub use durable::{Durable, ResumeFrom, StoredCommit};
pub use exit::Exit;
pub use last_will::{LastWill, LastWillOf};
pub use memory::{MemoryAnswer, MemoryRequest, Via};
pub use notice::{Notice, NoticeKind};
pub use output::{Output, OutputOf, OutputTaken};
pub use preload::Preload;
pub use registration::{Register, Task};
pub use replica::{ReplicaSource, Replication};
pub use report::{AgentReport, FromAgent, Held, Kept, Waiting};
pub use start::{BaseShards, Keeper, Member, RankRun, Seat, ShardHolder, Start};

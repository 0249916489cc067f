//! Dynamic rendezvous: nodes without a driver agree on rounds, with the behaviour of PyTorch's rendezvous.
//!
//! Nodes share one [`State`], which a holder keeps. Each node has a [`Machine`], which reads the state and replaces it by
//! compare-and-set. An operation ([`Op`]) is a pure function from the state to an [`Action`], and `op.rs` has them as
//! tables. The machine has the shape of all machines of the core: [`Machine::step`], [`Machine::next_deadline`].
//!
//! ```text
//!            JoinRequested, ExitRequested, CloseRequested
//!   shell  ------------------------------------------------>  Machine   Read, CompareAndSet, Heartbeat
//!          <------------------------------------------------            ------------------------------>  holder
//!            Joined, MembershipChanged, RoundOver, ...                  <------------------------------
//!                                            StateRead, Written, Conflict, NotSilent, HeartbeatRecorded, StateChanged
//! ```
//!
//! | list | a node on it | leaves it |
//! |---|---|---|
//! | participants | is in the current round | to join the next one, to exit, or when it is dead |
//! | wait list | waits for the next round | when the next round forms |
//! | redundancy list | is one too many for `max_nodes` | when a participant leaves and no other node takes the place |
//!
//! The next round forms when all participants have left the current one. A participant leaves if it joins again, which
//! [`Command::MembershipChanged`] asks for.
//!
//! # The holder
//! The port is [`Command::Read`], [`Command::CompareAndSet`], [`Command::Heartbeat`] and the answers. A holder has to
//! - replace the state only if the token is the expected one, and give a larger token for each write, for ever;
//! - keep the number of the last heartbeat of each member beside the state, from the same counter as the tokens;
//! - apply [`HeartbeatChanges`] in one step with the write, or refuse both;
//! - report each write to all nodes ([`Event::StateChanged`]). Lost reports cost time: a node learns at its next heartbeat.
//!
//! [`MemoryHolder`] is one in memory. Other holders keep the bytes of [`State::encode`]: [`server::Server`] does so for nodes
//! that connect to it. In a store with revisions, a heartbeat is a key for each node, and its number is the revision of the
//! last change of that key.
//!
//! # Heartbeats
//! A heartbeat changes no state, so nobody is told of it. Its answer has what an observer needs: the nodes that were silent
//! since the observer's last tick, and the token of the state.
//! - **The write that adds a node is its first heartbeat**, and the one that removes it also removes what the holder keeps of it. A
//!   heartbeat of another node changes nothing. So what the holder keeps is about just the members, also if a node
//!   dies right after its join.
//! - **A heartbeat confirms a lease only with the state.** If the token of the answer is newer than the state of the node, the node reads
//!   first. So a node that others have removed learns of that by its next heartbeat, although reports may be lost.
//! - **A removal is refused if its node has beaten**: the holder compares the numbers in one step with the write. The observer
//!   then counts anew.
//! - **Heartbeats that the holder has lost** are not silence: a member without one cannot be removed. The answer has the number of nodes
//!   whose heartbeats are kept. If that is not the number of members under the same token, the node writes the state once
//!   more, with a heartbeat for each member. Members that have died meanwhile are silent from then on.
//!
//! # Invariants
//! - **D1** The ranks of a complete round are 0..n-1, each once, and `min_nodes <= n <= max_nodes`.
//!   A round with fewer than `max_nodes` completes no earlier than `last_call_timeout` after it has `min_nodes`.
//! - **D2** All nodes that join a round learn the same number of nodes, and their ranks differ. Losses afterwards do not
//!   change it.
//! - **D3** A node is a participant only by its own write. A round forms only when each participant of the round before
//!   has left it or was removed.
//! - **D4** Ranks are the order of arrival. A node keeps its place in that order from round to round. A node that left or
//!   was removed comes last when it returns.
//! - **D5** The rounds that a node joins have growing numbers, also if the holder loses the state.
//! - **D6** A node is removed only after it missed `keep_alive_max_attempt` heartbeats, as counted by the heartbeats of
//!   another node. A node that stood still or did not reach the holder counts nothing meanwhile.
//! - **D7** A participant without a confirmed heartbeat for [`Settings::lease`] ends its workers. So no two rounds train at
//!   the same time, if the clocks of two nodes run equally fast and shells carry out commands at once.
//! - **D8** If faults stop, nodes that join come into a complete round, become redundant, or fail by a timeout.
//! - **D9** The holder keeps the heartbeats of just the members: after each write, unless it has lost them since the last one.
//!
//! # Time
//! No clock is compared with the clock of another host, and the state contains no time. A last call is
//! `last_call_timeout` after a participant has seen its begin, by the clock of the participant that ends it first.
//!
//! # Not promised
//! - A node whose clock runs fast by more than `keep_alive_max_attempt` removes healthy nodes. If all others look dead to a
//!   node, it waits twice as long: then its own clock is as suspect as they are.
//! - A node that stands still (SIGSTOP) while its workers go on cannot end them. Others may be in a new round meanwhile. It
//!   ends them when it runs again, after at most one `heartbeat_timeout`.
//! - A write that was sent before a timeout may reach the holder afterwards. A node may then be on a list although its join
//!   has failed, until others see that it sends no heartbeat.
//! - If the holder loses the state, nodes that do not learn of it train beside the next round, for at most one lease.
//!   Nodes that know no earlier round may begin with a number that was used.
//! - Nodes with different settings are not detected.
//! - A change of the membership is a write of the whole state, and all nodes are told of it. So a round of N nodes is N writes,
//!   each of which grows with N.

mod answers;
mod codec;
mod deadlines;
mod draft;
mod event;
mod executor;
mod heartbeats;
mod holder;
mod link;
mod liveness;
mod machine;
#[doc(hidden)]
pub mod mutant;
mod node_id;
mod op;
mod results;
pub mod server;
mod settings;
mod state;

pub use codec::StateError;
pub use draft::{Action, Draft};
pub use event::{Command, Event, Failure, HolderError, Membership, Operation, Rejected, RoundOver};
pub use heartbeats::{BeatNumber, HeartbeatChanges, Recorded, Silence};
pub use holder::{MemoryHolder, Refused, RequestId, Snapshot, Token};
pub use machine::Machine;
pub use node_id::{InvalidNodeId, NodeId};
pub use op::{Context, Op};
pub use settings::{Settings, SettingsError};
pub use state::{Member, Phase, Role, State};

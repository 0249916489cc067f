//! Events of a node and the commands that follow.

use elasticrun_protocol::{Rank, Round};

use super::{
    NodeId,
    codec::StateError,
    heartbeats::{BeatNumber, HeartbeatChanges, Recorded},
    holder::{RequestId, Snapshot, Token},
    state::State,
};

/// Something that happened outside of the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The node wants to be in the next round. Its workers of the last round, if any, are stopped.
    JoinRequested,
    /// The node wants to leave. Its workers, if any, are stopped.
    ExitRequested,
    /// The job is done: no further round is wanted on any node.
    CloseRequested,
    /// The answer to [`Command::Read`].
    StateRead {
        /// The request.
        request: RequestId,
        /// What the holder has.
        snapshot: Snapshot,
    },
    /// The answer to [`Command::CompareAndSet`] if it succeeded.
    Written {
        /// The request.
        request: RequestId,
        /// The new token, which is the number of the heartbeats of the write as well.
        token: Token,
    },
    /// The answer to [`Command::CompareAndSet`] if another write was first.
    Conflict {
        /// The request.
        request: RequestId,
        /// What the holder has.
        snapshot: Snapshot,
    },
    /// The answer to [`Command::CompareAndSet`] if the state is the expected one, but nodes that it removes as dead are not.
    NotSilent {
        /// The request.
        request: RequestId,
        /// These nodes. Each has a heartbeat after the number that the request names, or the holder keeps none of it.
        nodes: Vec<NodeId>,
    },
    /// The answer to [`Command::Heartbeat`].
    HeartbeatRecorded {
        /// The request.
        request: RequestId,
        /// The heartbeat, and those of others.
        recorded: Recorded,
        /// The token of the state at that time.
        token: Token,
    },
    /// A request had no answer that can be used.
    Failed {
        /// The request.
        request: RequestId,
        /// The reason.
        error: HolderError,
    },
    /// A watch of the holder reports a write. Reports may repeat, overtake each other and be lost.
    StateChanged(Snapshot),
}

/// Why a request to the holder failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HolderError {
    /// The holder did not answer.
    #[error("the holder of the rendezvous cannot be reached")]
    Unreachable,
    /// The holder has no state that can be read.
    #[error(transparent)]
    Corrupt(#[from] StateError),
}

/// An action for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Reads the state.
    Read {
        /// The number for the answer.
        request: RequestId,
    },
    /// Replaces the state if its token is still the expected one.
    CompareAndSet {
        /// The number for the answer.
        request: RequestId,
        /// The token that was read.
        expected: Token,
        /// The new state.
        state: State,
        /// What changes in the heartbeats by the same write.
        heartbeats: HeartbeatChanges,
    },
    /// Records a heartbeat of this node, if the holder keeps its heartbeats, and compares those of the others.
    Heartbeat {
        /// The number for the answer.
        request: RequestId,
        /// This node.
        node: NodeId,
        /// The answer names the nodes whose last heartbeat is not after this number: that of this node's last tick.
        since: BeatNumber,
    },
    /// The join succeeded: the node is a participant. The shell starts the workers.
    Joined(Membership),
    /// The round of this node should end, since nodes wait or have left. The shell stops the workers and joins again.
    MembershipChanged {
        /// The round of this node.
        round: Round,
        /// Nodes on the wait list.
        waiting: usize,
        /// Participants of the round that have left it.
        left: usize,
    },
    /// The node is no participant any more. The shell stops the workers at once, and may join again.
    RoundOver {
        /// The round in which the node was.
        round: Round,
        /// The reason.
        reason: RoundOver,
    },
    /// The exit succeeded: the node is in no list.
    Exited,
    /// The rendezvous is closed, as requested.
    Closed,
    /// The rendezvous closed while this node was redundant. The node was not needed, and this is no failure.
    Released,
    /// A request of this node failed.
    RequestFailed {
        /// The request.
        operation: Operation,
        /// The reason.
        failure: Failure,
    },
    /// This node has removed others that sent no heartbeat.
    NodesRemoved {
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// An event changes nothing.
    Reject {
        /// The reason.
        why: Rejected,
    },
}

/// The place of a node in a complete round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The round. Each complete round of a rendezvous has another number.
    pub round: Round,
    /// The rank of the node.
    pub rank: Rank,
    /// The number of nodes with which the round completed.
    pub world_size: u32,
}

/// Why a node is no participant any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundOver {
    /// The state does not have the node: others saw no heartbeat, or the holder lost the state.
    Removed,
    /// No heartbeat of the node was confirmed for so long that others may remove it.
    LeaseExpired,
}

/// A request of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Event::JoinRequested`].
    Join,
    /// [`Event::ExitRequested`].
    Exit,
    /// [`Event::CloseRequested`].
    Close,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The rendezvous is closed.
    #[error("the rendezvous is closed")]
    Closed,
    /// Not enough nodes came in time, or the next round did not begin in time.
    #[error("the rendezvous did not complete in time")]
    Timeout,
    /// The holder did not answer in time.
    #[error("the holder of the rendezvous cannot be reached")]
    Unreachable,
    /// The holder's state cannot be read.
    #[error(transparent)]
    Corrupt(#[from] StateError),
    /// The state has no room for another node.
    #[error("the rendezvous has {max} nodes: no further node can join", max = State::MAX_NODES)]
    Full,
    /// An exit was requested meanwhile.
    #[error("the join was cancelled by an exit")]
    Cancelled,
}

/// Why an event changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The same kind of request is in progress.
    Busy,
    /// The answer is to no request in flight: it came too late, or twice.
    StaleAnswer,
}

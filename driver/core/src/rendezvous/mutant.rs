//! Mistakes to plant into the rendezvous: mistakes of PyTorch's, and mistakes that a change could introduce.
//!
//! They exist only with the feature `mutants`, as those of [`crate::mutant`]. The simulation of the rendezvous must
//! detect each one.

use crate::mutant::mutants;

mutants! {
    /// A round completes with one node less than the minimum.
    FewerThanMinimum: "D1",
    /// A last call goes on although the round has lost participants, and is short for those that come after.
    OldLastCall: "D1",
    /// A node that learns late of a round counts the participants that are left (PyTorch).
    WorldSizeOfNow: "D2",
    /// A join ends with a state that was not written.
    UnwrittenResult: "D2",
    /// The next round forms while participants of the current one have not left.
    NextRoundEarly: "D3",
    /// Ranks are the order of the ids (PyTorch).
    RanksByName: "D4",
    /// A node that joins again loses its age (PyTorch).
    AgeForgotten: "D4",
    /// A node joins the round again in which it was.
    SameRoundAgain: "D5",
    /// The first round after a loss of the state has number 0.
    RoundsBeginAnew: "D5",
    /// A node is dead after one missed heartbeat.
    OneMiss: "D6",
    /// Each heartbeat counts as a keep-alive interval of the observer.
    ImpatientObserver: "D6",
    /// The tick after the last heartbeat already counts as missed.
    FirstTickMissed: "D6",
    /// A node is removed although it has beaten after the observer's last tick.
    RemovalUnchecked: "D6",
    /// A participant that reaches nobody trains on (PyTorch).
    NoLease: "D7",
    /// A lease begins when the heartbeat is confirmed, not when it was sent.
    LeaseFromAnswer: "D7",
    /// A heartbeat confirms the lease of a node that others may have removed.
    HeartbeatUnread: "D7",
    /// The others do not learn that a participant has left (PyTorch).
    LossUnreported: "D8",
    /// Nodes that have no place stay on the wait list of a full round (PyTorch).
    WaitersAskForever: "D8",
    /// Redundant nodes stay redundant.
    NoTakeover: "D8",
    /// A request without an answer blocks the node.
    AnswerAwaitedForever: "D8",
    /// Dead nodes stay.
    DeadStay: "D8",
    /// Nodes that die before the holder has lost their heartbeats stay.
    LostHeartbeatsIgnored: "D8",
    /// The first heartbeat of a node follows the write that adds it.
    JoinWithoutHeartbeat: "D9",
}

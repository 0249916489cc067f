//! The heartbeats of the members, which a holder keeps beside the state.

use std::collections::{BTreeMap, BTreeSet};

use super::NodeId;

/// The number of a heartbeat. A holder numbers writes and heartbeats by one counter, which grows for ever: a later one has a
/// larger number, and a heartbeat that is part of a write has the number of its token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BeatNumber(pub u64);

/// What a holder gives for a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The number of the heartbeat.
    pub number: BeatNumber,
    /// The nodes whose heartbeats the holder keeps.
    pub nodes: usize,
    /// Those of them whose last heartbeat is not after the number that the request names, in no order.
    pub silent: Vec<NodeId>,
}

/// What a write changes in the heartbeats, in one step with the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatChanges {
    /// Nodes that have a heartbeat by this write: its writer, as long as it is a member. The holder keeps theirs from now on.
    pub beats: Vec<NodeId>,
    /// Nodes whose heartbeats the holder no longer keeps: they leave the state by this write.
    pub forgets: Vec<NodeId>,
    /// The nodes that this write removes as dead. It is refused if they are not silent.
    pub unless_beaten: Option<Silence>,
}

/// Nodes that had no heartbeat after a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// The number.
    pub since: BeatNumber,
}

/// The number of the last heartbeat of each member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heartbeats {
    last: BTreeMap<NodeId, BeatNumber>,
    /// The same, the longest silence first.
    by_number: BTreeSet<(BeatNumber, NodeId)>,
}

impl Heartbeats {
    pub(super) fn len(&self) -> usize {
        self.last.len()
    }

    /// Records a heartbeat, and compares the others with `since`. A node that is not kept is not added: only a write knows
    /// which nodes are members.
    pub(super) fn beat(
        &mut self,
        node: &NodeId,
        number: BeatNumber,
        since: BeatNumber,
    ) -> Recorded {
        if self.last.contains_key(node) {
            self.set(node, number);
        }
        let silent = (self.by_number.iter()).take_while(|(number, _)| *number <= since);
        Recorded {
            number,
            nodes: self.len(),
            silent: silent.map(|(_, node)| node.clone()).collect(),
        }
    }

    /// The nodes that have a heartbeat after the number, or of which nothing is known.
    pub(super) fn alive(&self, silence: &Silence) -> Vec<NodeId> {
        let is_silent = |node: &NodeId| {
            self.last
                .get(node)
                .is_some_and(|last| *last <= silence.since)
        };
        let nodes = silence.nodes.iter();
        nodes.filter(|node| !is_silent(node)).cloned().collect()
    }

    /// Applies the changes of a write with this number.
    pub(super) fn apply(&mut self, number: BeatNumber, changes: &HeartbeatChanges) {
        for node in &changes.forgets {
            if let Some(last) = self.last.remove(node) {
                self.by_number.remove(&(last, node.clone()));
            }
        }
        for node in &changes.beats {
            self.set(node, number);
        }
    }

    fn set(&mut self, node: &NodeId, number: BeatNumber) {
        if let Some(last) = self.last.insert(node.clone(), number) {
            self.by_number.remove(&(last, node.clone()));
        }
        self.by_number.insert((number, node.clone()));
    }
}

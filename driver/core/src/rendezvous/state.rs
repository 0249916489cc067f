//! The state that all nodes share.

use std::collections::BTreeMap;

use elasticrun_protocol::{Rank, Round};
use serde::{Deserialize, Serialize};

use super::{
    NodeId,
    codec::EncodedMember,
    mutant::{Mutant, planted},
};

/// The shared state of a rendezvous. The holder keeps it, and nodes replace it by compare-and-set.
///
/// It contains no time of any clock. A node has one role or is absent, so no node is on two lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) round: Round,
    pub(super) phase: Phase,
    pub(super) closed: bool,
    /// The number of last calls so far: each has a number of its own.
    pub(super) last_calls: u64,
    /// The number of arrivals so far.
    pub(super) arrivals: u64,
    pub(super) members: BTreeMap<NodeId, Member>,
}

/// The phase of the current round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nodes join.
    Forming {
        /// The last call that runs, by number: the round has `min_nodes` and waits for more.
        last_call: Option<u64>,
    },
    /// The round has its participants and their ranks.
    Complete {
        /// The number of participants with which the round completed. Those that leave do not change it.
        world_size: u32,
    },
}

impl Default for Phase {
    fn default() -> Self {
        Self::Forming { last_call: None }
    }
}

/// A node in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EncodedMember", into = "EncodedMember")]
pub struct Member {
    /// What it takes part in.
    pub role: Role,
    /// Its place in the order of arrival. It keeps the place from round to round while it stays in the state.
    pub arrival: u64,
}

/// What a node takes part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The current round.
    Participant {
        /// Its rank, once the round is complete.
        rank: Option<Rank>,
    },
    /// The wait list: it joins the next round, for which participants leave the current one.
    Waiting,
    /// The redundancy list: the round is full, and this node takes over when a participant leaves.
    Redundant,
}

impl State {
    /// The largest number of nodes in a state.
    pub const MAX_NODES: usize = 16_384;

    /// An empty state whose first round has this number.
    pub fn starting_at(round: Round) -> Self {
        Self {
            round,
            ..Self::default()
        }
    }

    /// The number of the current round.
    pub fn round(&self) -> Round {
        self.round
    }

    /// The phase of the current round.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the current round is complete.
    pub fn is_complete(&self) -> bool {
        matches!(self.phase, Phase::Complete { .. })
    }

    /// Whether no round will form any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether no further node fits.
    pub fn is_full(&self) -> bool {
        self.members.len() >= Self::MAX_NODES
    }

    /// A node of the state.
    pub fn member(&self, node: &NodeId) -> Option<&Member> {
        self.members.get(node)
    }

    /// All nodes, in the order of their ids.
    pub fn members(&self) -> impl Iterator<Item = (&NodeId, &Member)> {
        self.members.iter()
    }

    /// The number of participants that have not left.
    pub fn participants(&self) -> usize {
        self.count(|role| matches!(role, Role::Participant { .. }))
    }

    /// The number of nodes on the wait list.
    pub fn waiting(&self) -> usize {
        self.count(|role| role == Role::Waiting)
    }

    /// The number of nodes on the redundancy list.
    pub fn redundant(&self) -> usize {
        self.count(|role| role == Role::Redundant)
    }

    /// The number of participants that have left the complete round.
    pub fn left(&self) -> usize {
        match self.phase {
            Phase::Forming { .. } => 0,
            Phase::Complete { world_size } => {
                (world_size as usize).saturating_sub(self.participants())
            }
        }
    }

    /// The number of nodes with this role that arrived before the member.
    pub(super) fn older(&self, role: Role, node: &NodeId, member: &Member) -> usize {
        let older = |(id, other): &(&NodeId, &Member)| {
            other.role == role && (other.arrival, *id) < (member.arrival, node)
        };
        self.members.iter().filter(older).count()
    }

    /// The participants in the order of their arrival.
    pub(super) fn by_arrival(&self) -> Vec<NodeId> {
        let participants = self.members.iter();
        let mut by_arrival: Vec<_> = participants
            .filter(|(_, member)| matches!(member.role, Role::Participant { .. }))
            .map(|(node, member)| match planted(Mutant::RanksByName) {
                true => (0, node),
                false => (member.arrival, node),
            })
            .collect();
        by_arrival.sort_unstable();
        let nodes = by_arrival.into_iter().map(|(_, node)| node.clone());
        nodes.collect()
    }

    fn count(&self, has: impl Fn(Role) -> bool) -> usize {
        let members = self.members.values();
        members.filter(|member| has(member.role)).count()
    }
}

//! The state as JSON, for holders that keep bytes.
//!
//! ```json
//! {"version":2,"round":3,"phase":{"complete":{"world_size":1}},"closed":false,"last_calls":3,"arrivals":2,
//!  "members":{"host-7_4711_0":{"role":"participant","rank":0,"arrival":0},
//!             "host-8_815_0":{"role":"redundant","arrival":1}}}
//! ```
//!
//! An older reader refuses a newer version with [`StateError::Version`]: nodes of one rendezvous change the state
//! together, so one that does not understand a part of it must not write it back.

use std::{borrow::Cow, collections::BTreeMap};

use elasticrun_protocol::{Rank, Round};
use serde::{Deserialize, Serialize};

use super::{
    NodeId,
    state::{Member, Phase, Role, State},
};

/// The version that this release writes, and the only one that it reads. Version 1 has the heartbeats in the state.
const VERSION: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Encoded<'a> {
    version: u32,
    round: Round,
    phase: Phase,
    closed: bool,
    last_calls: u64,
    arrivals: u64,
    members: Cow<'a, BTreeMap<NodeId, Member>>,
}

/// A member without a nested role: serde buffers the fields of a flattened enum, which takes several times as long.
#[derive(Serialize, Deserialize)]
pub(super) struct EncodedMember {
    role: RoleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rank: Option<Rank>,
    arrival: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RoleName {
    Participant,
    Waiting,
    Redundant,
}

impl From<Member> for EncodedMember {
    fn from(member: Member) -> Self {
        let (role, rank) = match member.role {
            Role::Participant { rank } => (RoleName::Participant, rank),
            Role::Waiting => (RoleName::Waiting, None),
            Role::Redundant => (RoleName::Redundant, None),
        };
        Self {
            role,
            rank,
            arrival: member.arrival,
        }
    }
}

impl From<EncodedMember> for Member {
    fn from(encoded: EncodedMember) -> Self {
        let rank = encoded.rank;
        let role = match encoded.role {
            RoleName::Participant => Role::Participant { rank },
            RoleName::Waiting => Role::Waiting,
            RoleName::Redundant => Role::Redundant,
        };
        Self {
            role,
            arrival: encoded.arrival,
        }
    }
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl State {
    /// The longest encoded state that is read, in bytes: [`Self::MAX_NODES`] nodes with the longest ids are shorter.
    pub const MAX_BYTES: usize = 16 << 20;

    /// The state as JSON.
    pub fn encode(&self) -> Vec<u8> {
        let encoded = Encoded {
            version: VERSION,
            round: self.round,
            phase: self.phase,
            closed: self.closed,
            last_calls: self.last_calls,
            arrivals: self.arrivals,
            members: Cow::Borrowed(&self.members),
        };
        serde_json::to_vec(&encoded).expect("strings are the only keys, and no type fails")
    }

    /// The state of [`Self::encode`].
    ///
    /// # Errors
    /// The bytes are too many, no JSON of a state, of another version, or a state that no sequence of actions gives.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        if bytes.len() > Self::MAX_BYTES {
            return Err(StateError::TooLong { bytes: bytes.len() });
        }
        let malformed = |error: serde_json::Error| StateError::Malformed {
            line: error.line(),
            column: error.column(),
            reason: error.to_string(),
        };
        let encoded = serde_json::from_slice::<Encoded<'_>>(bytes).map_err(|error| {
            // Another version may have other fields.
            match serde_json::from_slice(bytes) {
                Ok(Versioned { version }) if version != VERSION => StateError::Version { version },
                _ => malformed(error),
            }
        })?;
        if encoded.version != VERSION {
            let version = encoded.version;
            return Err(StateError::Version { version });
        }
        let state = Self {
            round: encoded.round,
            phase: encoded.phase,
            closed: encoded.closed,
            last_calls: encoded.last_calls,
            arrivals: encoded.arrivals,
            members: encoded.members.into_owned(),
        };
        state.check()?;
        Ok(state)
    }

    /// Whether the parts of a decoded state fit together.
    fn check(&self) -> Result<(), StateError> {
        if self.members.len() > Self::MAX_NODES {
            let nodes = self.members.len();
            return Err(StateError::TooManyNodes { nodes });
        }
        let mut arrivals = Vec::with_capacity(self.members.len());
        let mut ranks = Vec::new();
        for (node, member) in &self.members {
            arrivals.push((member.arrival, node));
            if member.arrival >= self.arrivals {
                return Err(StateError::Arrival { node: node.clone() });
            }
            let Role::Participant { rank } = member.role else {
                continue;
            };
            match (self.phase, rank) {
                (Phase::Forming { .. }, None) => {}
                (Phase::Complete { world_size }, Some(rank)) if rank < Rank(world_size) => {
                    ranks.push((rank, node));
                }
                _ => return Err(StateError::Rank { node: node.clone() }),
            }
        }
        if let Some(node) = second_of_equals(&mut arrivals) {
            return Err(StateError::Arrival { node: node.clone() });
        }
        if let Some(node) = second_of_equals(&mut ranks) {
            return Err(StateError::Rank { node: node.clone() });
        }
        match self.phase {
            Phase::Complete { .. } if ranks.is_empty() => Err(StateError::NoParticipants),
            Phase::Forming { last_call } if last_call > Some(self.last_calls) => {
                Err(StateError::LastCall)
            }
            _ => Ok(()),
        }
    }
}

/// A node whose number another node before it has.
fn second_of_equals<'a, T: Ord>(numbers: &mut [(T, &'a NodeId)]) -> Option<&'a NodeId> {
    numbers.sort_unstable();
    let pairs = numbers.windows(2).find(|pair| pair[0].0 == pair[1].0)?;
    Some(pairs[1].1)
}

/// Why bytes of a holder are no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// They are no JSON of a state.
    #[error("the state of the rendezvous is corrupt: {reason}")]
    Malformed {
        /// The line of the error, from 1.
        line: usize,
        /// The column of the error, from 1.
        column: usize,
        /// The words of the parser.
        reason: String,
    },
    /// Another release has written them.
    #[error(
        "the state of the rendezvous has version {version}, this release reads {VERSION}: use one release on all nodes"
    )]
    Version {
        /// The version of the state.
        version: u32,
    },
    /// They exceed [`State::MAX_BYTES`].
    #[error("the state of the rendezvous has {bytes} bytes, more than {max}", max = State::MAX_BYTES)]
    TooLong {
        /// Their number.
        bytes: usize,
    },
    /// The nodes exceed [`State::MAX_NODES`].
    #[error("the state of the rendezvous has {nodes} nodes, more than {max}", max = State::MAX_NODES)]
    TooManyNodes {
        /// Their number.
        nodes: usize,
    },
    /// Two nodes have the same place in the order of arrival, or a node has one that is not given yet.
    #[error("the state of the rendezvous is corrupt: the order of arrival of {node}")]
    Arrival {
        /// The node.
        node: NodeId,
    },
    /// A rank is missing, not possible, or not due.
    #[error("the state of the rendezvous is corrupt: the rank of {node}")]
    Rank {
        /// The node.
        node: NodeId,
    },
    /// A complete round has no participants.
    #[error("the state of the rendezvous is corrupt: a complete round without participants")]
    NoParticipants,
    /// The last call has a number that is not given yet.
    #[error("the state of the rendezvous is corrupt: the number of the last call")]
    LastCall,
}

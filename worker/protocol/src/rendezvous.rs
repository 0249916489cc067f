//! The messages between a node of a dynamic rendezvous and the server of its endpoint.
//!
//! ```text
//! node                                          server
//!   Hello { purpose: Rendezvous }            ->
//!                                            <-  Verdict::Welcome { version } | Verdict::Refused { why }
//!   Open { run, channel }                    ->
//!                                            <-  Opened::Ready | Opened::Refused { why }
//!   channel state:  FromNode                 ->
//!                                            <-  ToNode
//!   channel keys:   store::FromClient        ->
//!                                            <-  store::Answer
//! ```
//! A connection has one channel of one run. The state of a run is bytes to the server. `elasticrun_core::rendezvous` has the
//! machines of both sides.

use serde::{Deserialize, Serialize};

use crate::Blob;

/// The longest name of a run, in bytes.
pub const MAX_RUN: usize = 1024;

/// The longest state, in bytes: with it, a message fits a frame.
pub const MAX_STATE: usize = 2 << 20;

/// The first message of a node after the welcome.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Open {
    /// The run that the connection is about.
    pub run: String,
    /// What the connection carries.
    pub channel: Channel,
}

/// What a connection carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// Reads and writes of the state.
    State {
        /// Whether the server reports writes of others, beginning with the state of now.
        watch: bool,
    },
    /// Requests to the key-value store of the run.
    Keys,
}

/// The answer to [`Open`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opened {
    /// The channel is open.
    Ready,
    /// The connection ends.
    Refused {
        /// A message for the user.
        why: String,
    },
}

/// A message of a node about the state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromNode {
    /// Asks for the state. Answer: [`ToNode::Current`].
    Read {
        /// The node's number of the request.
        request: u64,
    },
    /// Replaces the state if its token is the expected one. Answer: [`ToNode::Written`] or [`ToNode::Conflict`].
    CompareAndSet {
        /// The node's number of the request.
        request: u64,
        /// The token of the state that is replaced; `None` if there must be no state.
        expected: Option<u64>,
        /// The new state.
        state: Blob,
        /// What changes in the heartbeats by the same write. A node that is removed and not silent gives [`ToNode::NotSilent`].
        #[serde(default, skip_serializing_if = "HeartbeatChanges::is_empty")]
        heartbeats: HeartbeatChanges,
    },
    /// A heartbeat of a node. It is recorded if a write has added the node. Answer: [`ToNode::HeartbeatRecorded`].
    Heartbeat {
        /// The node's number of the request.
        request: u64,
        /// The node.
        node: String,
        /// The number with which the last heartbeats of others are compared.
        since: u64,
    },
    /// The node has dealt with a [`ToNode::Changed`]: the next one may come.
    Seen,
    /// The node writes nothing after a [`ToNode::Conflict`]: others need not wait for it.
    Pass,
}

/// A message of the server about the state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToNode {
    /// The answer to [`FromNode::Read`].
    Current {
        /// The request.
        request: u64,
        /// The state of now.
        snapshot: Snapshot,
    },
    /// The state is replaced.
    Written {
        /// The request.
        request: u64,
        /// The token of the new state.
        token: u64,
    },
    /// The state is not replaced, since another write was first.
    Conflict {
        /// The request.
        request: u64,
        /// The state of now.
        snapshot: Snapshot,
    },
    /// The state is not replaced, since nodes that the write removes as dead have heartbeats after its number, or none at all.
    NotSilent {
        /// The request.
        request: u64,
        /// These nodes.
        nodes: Vec<String>,
    },
    /// The answer to [`FromNode::Heartbeat`].
    HeartbeatRecorded {
        /// The request.
        request: u64,
        /// The number of the heartbeat. It comes from the counter of the tokens.
        number: u64,
        /// The token of the state.
        token: u64,
        /// The number of nodes whose heartbeats are kept.
        nodes: usize,
        /// Those of them whose last heartbeat is not after `since`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        silent: Vec<String>,
    },
    /// Another node has written. The next report follows [`FromNode::Seen`]. It may be about several writes.
    Changed(Snapshot),
}

/// What a write changes in the heartbeats of a run. Programs without heartbeats change nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HeartbeatChanges {
    /// Nodes that have a heartbeat by the write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beats: Vec<String>,
    /// Nodes whose heartbeats are no longer kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forgets: Vec<String>,
    /// The write is refused if these nodes are not silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unless_beaten: Option<Silence>,
}

impl HeartbeatChanges {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.beats.is_empty() && self.forgets.is_empty() && self.unless_beaten.is_none()
    }
}

/// Nodes that had no heartbeat after a number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Silence {
    /// The nodes.
    pub nodes: Vec<String>,
    /// The number.
    pub since: u64,
}

/// The state of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// The fencing token. It grows with each write, also from one server to the next one of the endpoint.
    pub token: u64,
    /// The state; `None` before the first write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Blob>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{MAX_FRAME, MAX_UNPROVEN_FRAME, to_frame};

    #[test]
    fn the_longest_state_fits_a_frame() {
        let write = FromNode::CompareAndSet {
            request: u64::MAX,
            expected: Some(u64::MAX),
            state: Blob(vec![255; MAX_STATE]),
            heartbeats: HeartbeatChanges::default(),
        };
        assert!(to_frame(&write).expect("it fits").len() < MAX_FRAME);
    }

    #[test]
    fn the_longest_name_fits_the_frame_of_a_stranger() {
        // JSON may write one byte as six only for control characters, which names do not have.
        let open = Open {
            run: "\"".repeat(MAX_RUN),
            channel: Channel::State { watch: true },
        };
        assert!(to_frame(&open).expect("it fits").len() < MAX_UNPROVEN_FRAME);
    }

    #[test]
    fn on_the_wire() {
        let write = FromNode::CompareAndSet {
            request: 7,
            expected: Some(3),
            state: Blob(b"{}".to_vec()),
            heartbeats: HeartbeatChanges::default(),
        };
        let text = serde_json::to_string(&write).expect("it is JSON");
        assert_eq!(
            text,
            r#"{"compare_and_set":{"request":7,"expected":3,"state":"e30="}}"#
        );
        let removal = FromNode::CompareAndSet {
            request: 8,
            expected: Some(4),
            state: Blob(b"{}".to_vec()),
            heartbeats: HeartbeatChanges {
                beats: vec!["a".into()],
                forgets: vec!["b".into()],
                unless_beaten: Some(Silence {
                    nodes: vec!["b".into()],
                    since: 3,
                }),
            },
        };
        let text = serde_json::to_string(&removal).expect("it is JSON");
        assert_eq!(
            text,
            r#"{"compare_and_set":{"request":8,"expected":4,"state":"e30=","heartbeats":{"beats":["a"],"forgets":["b"],"unless_beaten":{"nodes":["b"],"since":3}}}}"#
        );
        let recorded = ToNode::HeartbeatRecorded {
            request: 9,
            number: 6,
            token: 4,
            nodes: 2,
            silent: vec![],
        };
        let text = serde_json::to_string(&recorded).expect("it is JSON");
        assert_eq!(
            text,
            r#"{"heartbeat_recorded":{"request":9,"number":6,"token":4,"nodes":2}}"#
        );
        let open = Open {
            run: "job".into(),
            channel: Channel::State { watch: true },
        };
        let text = serde_json::to_string(&open).expect("it is JSON");
        assert_eq!(text, r#"{"run":"job","channel":{"state":{"watch":true}}}"#);
    }
}

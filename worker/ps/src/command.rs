//! What workers tell the servers of an app beside pushes and pulls: simple requests with JSON.

use serde::{Deserialize, Serialize};

use crate::core::optimizer::{Change, Optimizer};

/// A command. A later release may add some.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Command {
    /// The optimizer changes from a step on.
    Change {
        /// The step of the sender. A change for an earlier step than that of the last change is ignored.
        step: u64,
        /// The new numbers.
        change: Change,
    },
    /// Asks for the optimizer.
    Optimizer,
    /// A worker begins, and asks for its clock.
    Join,
    /// A worker has come to a clock.
    Tick {
        /// The clock.
        clock: u64,
    },
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// The handler has no such command.
    Unknown,
    /// The handler refuses it.
    Refused(String),
    /// The optimizer, after a change.
    Optimizer(Optimizer),
    /// The clock of the worker.
    Clock(u64),
}

impl Command {
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a command is plain data")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

impl Reply {
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a reply is plain data")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or(Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_wire_stay() {
        let change = Change {
            learning_rate: Some(0.5),
            weight_decay: None,
        };
        let words = |command: Command| String::from_utf8(command.encode()).unwrap();
        let text = r#"{"change":{"step":7,"change":{"learning_rate":0.5}}}"#;
        assert_eq!(words(Command::Change { step: 7, change }), text);
        assert_eq!(words(Command::Join), r#""join""#);
        assert_eq!(words(Command::Tick { clock: 3 }), r#"{"tick":{"clock":3}}"#);
        assert_eq!(words(Command::Optimizer), r#""optimizer""#);
        let reply = Reply::Optimizer(Optimizer::adamw(0.1, 0.01));
        assert_eq!(Reply::decode(&reply.encode()), reply);
        assert_eq!(Reply::decode(b"?"), Reply::Unknown);
        assert_eq!(Command::decode(br#"{"later":1}"#), None);
    }
}

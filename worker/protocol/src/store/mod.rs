//! The key-value store of a job: the requests of a worker and their answers.
//!
//! ```text
//! worker  --FromClient-->  agent  --FromHost-->  driver     requests, numbered by the worker
//! worker  <---Answer-----  agent  <--ToHost----  driver     answers, in any order
//! ```
//! A key has a value, a queue of elements, or both. They are independent: only [`Op::Wait`] and [`Op::Check`] see both.
//!
//! Both hops use their own connections, apart from those for commands and reports, so that even a large value never
//! delays an abort. Bytes are sent as base64. [`Op`] defines each operation; `elasticrun_core::store` carries them out.
//!
//! Limits: a key has at most [`MAX_KEY`] bytes, a value in a message [`MAX_PIECE`], and all keys and values of one request
//! or answer [`MAX_MESSAGE`]. So every message fits a frame, except with keys that need much escaping in JSON; those are
//! refused when they are written.
//!
//! # Larger values
//! A worker stages a larger value with the store, piece by piece ([`Op::Stage`]), before the operation that writes it
//! ([`Op::Large`]). The store stages a larger value of an answer ([`Value::Large`]), and the worker reads it piece by piece
//! ([`Op::ReadStaged`]). Each piece is a request of its own with an answer, so the receiver sets the pace, and pieces of
//! several workers take turns. What is staged belongs to one worker and one connection of its agent.

mod op;
mod refused;
mod value;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{DriverEpoch, HostId, Process, Round, millis};

pub use crate::Blob;
pub use op::Op;
pub use refused::{MISSING_NAMED, Refused, shown};
pub use value::{StagedValue, Value};

/// The longest key, in bytes of UTF-8.
pub const MAX_KEY: usize = 4 << 10;

/// The most bytes of one value in a message. A larger one is staged in pieces of this size.
pub const MAX_PIECE: usize = 1 << 20;

/// The most bytes of keys and values in one request, and of values in one answer.
pub const MAX_MESSAGE: usize = 2 << 20;

/// The most bytes of keys in one [`Value::Keys`], where each key counts as four more. JSON may write a byte as six, so the
/// answer fits a frame.
pub const MAX_LISTED: usize = 512 << 10;

/// The set of keys that a request uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespace {
    /// Keys of one round. They are deleted when the next round starts, so that no worker reads the address of a dead peer.
    Round {
        /// The driver that started the round.
        epoch: DriverEpoch,
        /// The number of the round. Requests of another round than the current one are refused.
        round: Round,
    },
    /// Keys of the job, which stay as long as it runs.
    Job,
}

/// A request of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Grows with each request of a connection. A number that does not exceed the last one is a repeat.
    pub number: u64,
    /// The set of keys that it uses.
    pub namespace: Namespace,
    /// How long to wait for missing keys, if the operation waits.
    #[serde(with = "millis")]
    pub timeout: Duration,
    /// The operation.
    pub op: Op,
    /// The worker can read staged values. False from an older worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads_staged: bool,
}

/// A message from a worker, on the connection that it opened by [`crate::FromWorker::OpenStore`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromClient {
    /// A request; it gets one [`Answer`].
    Ask(Request),
    /// The answer to this request is no longer awaited.
    Forget {
        /// The number of the request.
        number: u64,
    },
    /// Values that the worker neither uses nor reads any more.
    Discard {
        /// Those that it has staged, or begun to.
        uploads: Vec<u64>,
        /// Those that the store has staged for it.
        downloads: Vec<u64>,
    },
    /// The worker or its connection has ended: all its requests are forgotten. Its agent sends this message.
    Left,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the request.
    pub number: u64,
    /// The value, or the reason for a refusal.
    pub result: Result<Value, Refused>,
}

/// The first frame of an agent on the store connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreOf {
    /// The host of the agent.
    pub host: HostId,
    /// The number of its control connection, from [`crate::control::Setup`]. An agent that the driver has given up is
    /// refused.
    pub instance: u64,
}

/// A message of a worker, forwarded by its agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FromHost {
    /// The worker that sent it, by slot and start.
    pub process: Process,
    /// A message of the worker, or [`FromClient::Left`] of its agent.
    pub message: FromClient,
}

/// An answer for a worker of a host, forwarded by its agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToHost {
    /// The worker that waits for it, by slot and start.
    pub process: Process,
    /// The answer, as the driver gives it.
    pub answer: Answer,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{MAX_FRAME, to_frame};

    fn set(key: usize, value: usize) -> Op {
        Op::Set {
            key: "k".repeat(key),
            value: Blob(vec![0; value]),
        }
    }

    #[test]
    fn each_limit_has_its_own_refusal() {
        assert_eq!(set(MAX_KEY, MAX_PIECE).check(), Ok(()));
        let long = set(MAX_KEY + 1, 0).check();
        assert!(matches!(
            long,
            Err(Refused::KeyTooLong { length: 4097, .. })
        ));
        let large = set(1, MAX_PIECE + 1).check();
        assert!(matches!(large, Err(Refused::ValueTooLarge { .. })));
        let entry = |n: usize| (n.to_string(), Blob(vec![0; MAX_PIECE]));
        let many = Op::MultiSet {
            entries: (0..2).map(entry).collect(),
        };
        assert!(matches!(many.check(), Err(Refused::RequestTooLarge { .. })));
    }

    #[test]
    fn the_largest_request_and_answer_fit_a_frame() {
        let entry = |n: usize| (n.to_string(), Blob(vec![255; MAX_PIECE - 1]));
        let op = Op::MultiSet {
            entries: (0..2).map(entry).collect(),
        };
        assert_eq!(op.check(), Ok(()));
        let ask = FromClient::Ask(Request {
            number: u64::MAX,
            namespace: Namespace::Job,
            timeout: Duration::MAX,
            op,
            reads_staged: true,
        });
        let values = Value::Many(vec![Blob(vec![255; MAX_PIECE]); 2]);
        let answer = Answer {
            number: u64::MAX,
            result: Ok(values),
        };
        for frame in [to_frame(&ask), to_frame(&answer)] {
            assert!(frame.expect("it fits").len() < MAX_FRAME * 3 / 4);
        }
    }

    #[test]
    fn on_the_wire() {
        let ask = FromClient::Ask(Request {
            number: 7,
            namespace: Namespace::Round {
                epoch: DriverEpoch(1),
                round: Round(2),
            },
            timeout: Duration::from_secs(1),
            op: Op::CompareSet {
                key: "a".into(),
                expected: Blob::default(),
                desired: Blob(b"\xff\0".to_vec()),
            },
            reads_staged: false,
        });
        let text = serde_json::to_string(&ask).expect("it is JSON");
        assert_eq!(
            text,
            r#"{"ask":{"number":7,"namespace":{"round":{"epoch":1,"round":2}},"timeout":1000,"op":{"compare_set":{"key":"a","expected":"","desired":"/wA="}}}}"#
        );
        let again: FromClient = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(again, ask);
    }
}

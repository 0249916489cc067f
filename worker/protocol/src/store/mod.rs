//! The key-value store of a job: what a worker asks of it, and what it is told.
//!
//! ```text
//! worker  --FromClient-->  agent  --FromHost-->  driver     requests, numbered by the worker
//! worker  <---Answer-----  agent  <--ToHost----  driver     answers, in any order
//! ```
//! Both hops are connections of their own beside the ones for orders and reports, so that no value, however
//! large, is ahead of an abort. Bytes travel as base64. What each operation does is in [`Op`]; who decides it
//! is `elasticrun_core::store`.
//!
//! Limits: a key has at most [`MAX_KEY`] bytes, a value [`MAX_VALUE`], all keys and values of one request or
//! answer [`MAX_MESSAGE`]. So every message fits a frame, but for keys that JSON has to escape; those are
//! refused where they are written.

mod blob;
mod refused;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{DriverEpoch, HostId, Process, Round, millis};

pub use blob::Blob;
pub use refused::{MISSING_NAMED, Refused, shown};

/// The longest key, in bytes of UTF-8.
pub const MAX_KEY: usize = 4 << 10;

/// The largest value, in bytes.
pub const MAX_VALUE: usize = 1 << 20;

/// The most bytes of keys and values in one request, and of values in one answer.
pub const MAX_MESSAGE: usize = 2 << 20;

/// Whose keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespace {
    /// Of one round: gone when the next one starts, so that nobody gets the address of a dead peer.
    Round {
        /// The driver that started it.
        epoch: DriverEpoch,
        /// Which.
        round: Round,
    },
    /// Of the job: stays while it runs.
    Job,
}

/// What a worker wants done. One operation is atomic, whatever others do at the time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Writes a value. Answer: [`Value::Done`].
    Set {
        /// Where.
        key: String,
        /// What.
        value: Blob,
    },
    /// Reads a value, as soon as it is there. Answer: [`Value::Bytes`].
    Get {
        /// Where.
        key: String,
    },
    /// Adds to a number, which is 0 if it is not there and is kept as decimal text. Answer: [`Value::Number`], the sum.
    Add {
        /// Where.
        key: String,
        /// How much.
        amount: i64,
    },
    /// Writes `desired` if the value is `expected`, or if there is none and `expected` is empty. Answer:
    /// [`Value::Current`], what is there after it.
    CompareSet {
        /// Where.
        key: String,
        /// What should be there.
        expected: Blob,
        /// What to write then.
        desired: Blob,
    },
    /// Waits until all are there at once. Answer: [`Value::Done`].
    Wait {
        /// Which.
        keys: Vec<String>,
    },
    /// Whether all are there. Answer: [`Value::Truth`].
    Check {
        /// Which.
        keys: Vec<String>,
    },
    /// Removes a key. Answer: [`Value::Truth`], whether it was there.
    Delete {
        /// Which.
        key: String,
    },
    /// Counts keys. Answer: [`Value::Number`].
    NumKeys {
        /// How they begin.
        prefix: String,
    },
    /// Writes behind what is there. Answer: [`Value::Done`].
    Append {
        /// Where.
        key: String,
        /// What.
        value: Blob,
    },
    /// Reads values, as soon as all are there at once. Answer: [`Value::Many`], in the order of the keys.
    MultiGet {
        /// Where.
        keys: Vec<String>,
    },
    /// Writes all values or, if there is no room, none. Answer: [`Value::Done`].
    MultiSet {
        /// Where and what.
        entries: Vec<(String, Blob)>,
    },
}

impl Op {
    /// Whether it respects the limits.
    ///
    /// # Errors
    /// The limit that it does not.
    pub fn check(&self) -> Result<(), Refused> {
        let mut total = 0;
        let mut key = |key: &str| {
            total += key.len();
            match key.len() {
                length if length > MAX_KEY => Err(Refused::KeyTooLong {
                    key: shown(key),
                    length: length as u64,
                    limit: MAX_KEY as u64,
                }),
                _ => Ok(()),
            }
        };
        match self {
            Self::Set { key: at, value } | Self::Append { key: at, value } => {
                key(at)?;
                total += fits(at, value)?;
            }
            Self::CompareSet {
                key: at,
                expected,
                desired,
            } => {
                key(at)?;
                total += fits(at, expected)? + fits(at, desired)?;
            }
            Self::Get { key: at }
            | Self::Add { key: at, .. }
            | Self::Delete { key: at }
            | Self::NumKeys { prefix: at } => key(at)?,
            Self::Wait { keys } | Self::Check { keys } | Self::MultiGet { keys } => {
                keys.iter().try_for_each(|at| key(at))?;
            }
            Self::MultiSet { entries } => {
                entries.iter().try_for_each(|(at, _)| key(at))?;
                for (at, value) in entries {
                    total += fits(at, value)?;
                }
            }
        }
        if total > MAX_MESSAGE {
            return Err(Refused::RequestTooLarge {
                length: total as u64,
                limit: MAX_MESSAGE as u64,
            });
        }
        Ok(())
    }
}

fn fits(key: &str, value: &Blob) -> Result<usize, Refused> {
    match value.0.len() {
        length if length > MAX_VALUE => Err(Refused::ValueTooLarge {
            key: shown(key),
            length: length as u64,
            limit: MAX_VALUE as u64,
        }),
        length => Ok(length),
    }
}

/// One request of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Grows with each request of a connection: what is not larger than the last is a repeat.
    pub number: u64,
    /// Whose keys.
    pub namespace: Namespace,
    /// How long to wait for keys that are not there, if the operation waits at all.
    #[serde(with = "millis")]
    pub timeout: Duration,
    /// What to do.
    pub op: Op,
}

/// From a worker, on the connection that it opened by [`crate::FromWorker::OpenStore`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromClient {
    /// A request; it gets one [`Answer`].
    Ask(Request),
    /// Nobody waits for the answer to this one any more.
    Forget {
        /// Which.
        number: u64,
    },
    /// Its connection has ended, or it has: all that it waits for is forgotten. Its agent says so.
    Left,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the request.
    pub number: u64,
    /// What came of it.
    pub result: Result<Value, Refused>,
}

/// What an operation gives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// It is done, or all keys are there.
    Done,
    /// A value.
    Bytes(Blob),
    /// A value, if there is one.
    Current(Option<Blob>),
    /// Values.
    Many(Vec<Blob>),
    /// A sum or a count.
    Number(i64),
    /// Yes or no.
    Truth(bool),
}

/// First frame of an agent on the connection for the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreOf {
    /// Its host.
    pub host: HostId,
    /// The number of its control connection, from [`crate::control::Setup`]: that of an agent which the driver
    /// has given up is refused.
    pub instance: u64,
}

/// What a worker of a host says, from its agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FromHost {
    /// Which worker.
    pub process: Process,
    /// What it says.
    pub message: FromClient,
}

/// An answer for a worker of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToHost {
    /// Which worker.
    pub process: Process,
    /// For it.
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
        assert_eq!(set(MAX_KEY, MAX_VALUE).check(), Ok(()));
        let long = set(MAX_KEY + 1, 0).check();
        assert!(matches!(
            long,
            Err(Refused::KeyTooLong { length: 4097, .. })
        ));
        let large = set(1, MAX_VALUE + 1).check();
        assert!(matches!(large, Err(Refused::ValueTooLarge { .. })));
        let entry = |n: usize| (n.to_string(), Blob(vec![0; MAX_VALUE]));
        let many = Op::MultiSet {
            entries: (0..2).map(entry).collect(),
        };
        assert!(matches!(many.check(), Err(Refused::RequestTooLarge { .. })));
    }

    #[test]
    fn the_largest_request_and_answer_fit_a_frame() {
        let entry = |n: usize| (n.to_string(), Blob(vec![255; MAX_VALUE - 1]));
        let op = Op::MultiSet {
            entries: (0..2).map(entry).collect(),
        };
        assert_eq!(op.check(), Ok(()));
        let ask = FromClient::Ask(Request {
            number: u64::MAX,
            namespace: Namespace::Job,
            timeout: Duration::MAX,
            op,
        });
        let values = Value::Many(vec![Blob(vec![255; MAX_VALUE]); 2]);
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

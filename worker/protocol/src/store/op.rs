//! The operations of the store, and their limits.

use serde::{Deserialize, Serialize};

use super::{Blob, MAX_KEY, MAX_MESSAGE, MAX_PIECE, Refused, StagedValue, shown};

/// An operation of a worker. Each operation is atomic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Writes a value. Answer: [`Value::Done`](super::Value::Done).
    Set {
        /// The key to write.
        key: String,
        /// Replaces the value if the key exists.
        value: Blob,
    },
    /// Reads a value; waits until the key exists. Answer: [`Value::Bytes`](super::Value::Bytes).
    Get {
        /// The key to read.
        key: String,
    },
    /// Adds to a number that is stored as decimal text; a missing key counts as 0. Answer: [`Value::Number`](super::Value::Number), the sum.
    Add {
        /// The key of the number.
        key: String,
        /// The number to add.
        amount: i64,
    },
    /// Writes `desired` if the value is `expected`, or if the key is missing and `expected` is empty. Answer:
    /// [`Value::Current`](super::Value::Current), the value after the operation.
    CompareSet {
        /// The key of the value.
        key: String,
        /// The value to compare with.
        expected: Blob,
        /// The value to write.
        desired: Blob,
    },
    /// Waits until all keys exist at the same time. A key exists while it has a value, or an element in its queue. Answer:
    /// [`Value::Done`](super::Value::Done).
    Wait {
        /// The keys to wait for.
        keys: Vec<String>,
    },
    /// Whether all keys exist, as for [`Op::Wait`]. Answer: [`Value::Truth`](super::Value::Truth).
    Check {
        /// The keys to look for.
        keys: Vec<String>,
    },
    /// Removes the value of a key, not its queue. Answer: [`Value::Truth`](super::Value::Truth), whether the key had a value.
    Delete {
        /// The key to remove.
        key: String,
    },
    /// Counts the values of keys with a prefix. Answer: [`Value::Number`](super::Value::Number).
    NumKeys {
        /// The beginning of the counted keys; empty for all keys.
        prefix: String,
    },
    /// Appends to a value. Answer: [`Value::Done`](super::Value::Done).
    Append {
        /// The key of the value to extend.
        key: String,
        /// The bytes to append. A missing key counts as an empty value.
        value: Blob,
    },
    /// Reads values; waits until all keys exist at the same time. Answer: [`Value::Many`](super::Value::Many), in the order of the keys.
    MultiGet {
        /// The keys to read.
        keys: Vec<String>,
    },
    /// Writes all values, or none if they do not fit. Answer: [`Value::Done`](super::Value::Done).
    MultiSet {
        /// The keys and their values.
        entries: Vec<(String, Blob)>,
    },
    /// Appends an element to a queue. Answer: [`Value::Done`](super::Value::Done).
    QueuePush {
        /// The key of the queue.
        key: String,
        /// The element.
        value: Blob,
    },
    /// Takes the first element of a queue. Requests that wait for an element get one in the order of their arrival.
    /// Answer: [`Value::Bytes`](super::Value::Bytes) after a wait, else [`Value::Current`](super::Value::Current).
    QueuePop {
        /// The key of the queue.
        key: String,
        /// Whether to wait while the queue is empty.
        block: bool,
    },
    /// The number of elements of a queue. Answer: [`Value::Number`](super::Value::Number).
    QueueLen {
        /// The key of the queue.
        key: String,
    },
    /// Lists the keys that have a value and a prefix, in the order of their bytes. Answer: [`Value::Keys`](super::Value::Keys).
    ListKeys {
        /// The beginning of the listed keys, which the answer leaves out; empty for all keys.
        prefix: String,
        /// The answer begins behind this key, written without the prefix.
        after: Option<String>,
    },
    /// Stages a piece of a value for a later [`Op::Large`]. Pieces come in order; the first one begins the value anew.
    /// Answer: [`Value::Done`](super::Value::Done).
    Stage {
        /// The worker's number of the value.
        staged: u64,
        /// The key that the value is for, which messages name.
        key: String,
        /// The size of the whole value.
        length: u64,
        /// The number of bytes before this piece.
        offset: u64,
        /// The piece.
        bytes: Blob,
    },
    /// Carries out an operation with staged values, which are staged no longer after it. Answer: as for the operation.
    Large {
        /// An operation that writes, with empty bytes in place of the staged values.
        op: Box<Op>,
        /// The staged values.
        staged: Vec<StagedValue>,
    },
    /// Reads the next piece of a value that the store has staged. After the last piece it is staged no longer. Answer:
    /// [`Value::Bytes`](super::Value::Bytes).
    ReadStaged {
        /// The store's number of the value.
        staged: u64,
        /// The number of bytes before the piece.
        offset: u64,
    },
}

impl Op {
    /// The oldest protocol version whose peers know the operation.
    pub fn version(&self) -> u16 {
        match self {
            Self::QueuePush { .. }
            | Self::QueuePop { .. }
            | Self::QueueLen { .. }
            | Self::ListKeys { .. }
            | Self::Stage { .. }
            | Self::Large { .. }
            | Self::ReadStaged { .. } => 4,
            _ => 3,
        }
    }

    /// The values that the operation writes or compares with, each with its key.
    pub fn values_mut(&mut self) -> Vec<(&str, &mut Blob)> {
        match self {
            Self::Set { key, value }
            | Self::Append { key, value }
            | Self::QueuePush { key, value } => {
                vec![(key, value)]
            }
            Self::CompareSet {
                key,
                expected,
                desired,
            } => vec![(key, expected), (key, desired)],
            Self::MultiSet { entries } => {
                let entries = entries.iter_mut();
                entries.map(|(key, value)| (key.as_str(), value)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// The limit that the operation exceeds.
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
            Self::Set { key: at, value }
            | Self::Append { key: at, value }
            | Self::QueuePush { key: at, value } => {
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
            | Self::NumKeys { prefix: at }
            | Self::QueuePop { key: at, .. }
            | Self::QueueLen { key: at } => key(at)?,
            Self::ListKeys { prefix, after } => {
                key(prefix)?;
                key(after.as_deref().unwrap_or_default())?;
            }
            Self::Stage { key: at, bytes, .. } => {
                key(at)?;
                total += fits(at, bytes)?;
            }
            Self::Large { op, .. } => op.check()?,
            Self::ReadStaged { .. } => {}
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
        length if length > MAX_PIECE => Err(Refused::ValueTooLarge {
            key: shown(key),
            length: length as u64,
            limit: MAX_PIECE as u64,
        }),
        length => Ok(length),
    }
}

//! The values of answers, and references to values that are staged.

use serde::{Deserialize, Serialize};

use super::Blob;

/// A reference from a request or an answer to a value that is staged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StagedValue {
    /// The position of the value among those of the request or answer, which has empty bytes there.
    pub index: u32,
    /// The number of the value: of a request, the worker's number; of an answer, the store's.
    pub staged: u64,
    /// The size of the value in bytes.
    pub length: u64,
}

/// The value of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// The operation is done, or all keys exist.
    Done,
    /// A value.
    Bytes(Blob),
    /// A value, if the key exists.
    Current(Option<Blob>),
    /// Values.
    Many(Vec<Blob>),
    /// Keys in order, without the prefix of the request.
    Keys {
        /// At most [`MAX_LISTED`](super::MAX_LISTED) bytes of keys.
        keys: Vec<String>,
        /// Further keys follow the last one.
        more: bool,
    },
    /// A sum or a count.
    Number(i64),
    /// A truth value.
    Truth(bool),
    /// An answer whose values do not all fit into it.
    Large {
        /// The answer, with empty bytes in place of the staged values.
        value: Box<Value>,
        /// The staged values. The worker reads each to its end, or discards it.
        staged: Vec<StagedValue>,
    },
}

impl Value {
    /// The bytes in the value, in order.
    pub fn blobs_mut(&mut self) -> Vec<&mut Blob> {
        match self {
            Self::Bytes(blob) | Self::Current(Some(blob)) => vec![blob],
            Self::Many(blobs) => blobs.iter_mut().collect(),
            Self::Large { value, .. } => value.blobs_mut(),
            Self::Done
            | Self::Current(None)
            | Self::Keys { .. }
            | Self::Number(_)
            | Self::Truth(_) => Vec::new(),
        }
    }
}

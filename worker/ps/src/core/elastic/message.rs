//! What elastic servers are told, and what they tell others.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{filter::Identity, snapshot::SavedRange, store::FoundBytes};
use crate::{
    core::{
        frame::{PULL, PUSH},
        keys::{self, KeyError, Lens},
        node::NodeId,
        ranges::KeyRange,
        store::Expected,
    },
    error::Refusal,
};

/// Who asked, and what an answer repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) identity: Identity,
    /// The lowest timestamp that the worker waited for when it sent the request.
    pub(crate) floor: u64,
    pub(crate) app: u32,
    pub(crate) customer: u32,
    pub(crate) cmd: i32,
    pub(crate) priority: i32,
    /// The number of the part of the request.
    pub(crate) part: u16,
    /// `PUSH` and `PULL`.
    pub(crate) flags: u8,
    pub(crate) dtype: u8,
}

impl Origin {
    pub(crate) fn is_push(&self) -> bool {
        self.flags & PUSH != 0
    }

    pub(crate) fn is_pull(&self) -> bool {
        self.flags & PULL != 0
    }
}

/// Keys and values of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    pub(crate) keys: &'a [u64],
    /// Empty if all keys have equally many values.
    pub(crate) lens: &'a [u32],
    pub(crate) per_key: u32,
    pub(crate) values: &'a [u8],
}

impl<'a> Body<'a> {
    /// How many values each key has.
    pub(crate) fn lens(&self) -> Lens<'a> {
        match self.lens {
            [] => Lens::Uniform(self.per_key as usize),
            lens => Lens::Mixed(lens),
        }
    }

    /// How many values a pull expects.
    pub(crate) fn expected(&self) -> Expected<'a> {
        match (self.lens, self.per_key) {
            ([], 0) => Expected::Unknown,
            _ => Expected::Known(self.lens()),
        }
    }

    /// Checks that the parts belong together: a peer may have sent anything. `size` is that of a value.
    pub(crate) fn check(&self, push: bool, size: usize) -> Result<(), KeyError> {
        keys::check_keys(self.keys)?;
        let total = match self.lens {
            [] => self.keys.len() as u64 * u64::from(self.per_key),
            lens => {
                let total: u64 = lens.iter().map(|&len| u64::from(len)).sum();
                keys::check_lens(self.keys.len(), Some(lens), total as usize)?;
                total
            }
        };
        let max = keys::MAX_VALUE_BYTES / size as u64;
        if total > max {
            return Err(keys::too_many("a number of values", total, max));
        }
        let given = if push { total * size as u64 } else { 0 };
        match self.values.len() as u64 == given {
            true => Ok(()),
            false => Err(KeyError::Uneven {
                keys: self.keys.len(),
                values: self.values.len() / size,
            }),
        }
    }
}

/// A request with its own memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Op {
    pub(crate) origin: Origin,
    pub(crate) keys: Vec<u64>,
    pub(crate) lens: Vec<u32>,
    pub(crate) per_key: u32,
    pub(crate) values: Bytes,
}

impl Op {
    pub(crate) fn new(origin: Origin, body: Body<'_>) -> Self {
        Self {
            origin,
            keys: body.keys.to_vec(),
            lens: body.lens.to_vec(),
            per_key: body.per_key,
            values: Bytes::copy_from_slice(body.values),
        }
    }

    pub(crate) fn body(&self) -> Body<'_> {
        Body {
            keys: &self.keys,
            lens: &self.lens,
            per_key: self.per_key,
            values: &self.values,
        }
    }
}

/// As what a server sends something of a range to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Neighbours of a chain that was changed in this version of the map.
    Chain(u64),
    /// The tail and its learner, in a copy with this number of the tail.
    Learner(u64),
}

/// What is said of a push on its way through a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHead {
    pub(crate) first: u64,
    pub(crate) mode: Mode,
    /// The number of the push in its range, from 1 on. 0 if it is for the keys alone that a learner has already.
    pub(crate) index: u64,
    pub(crate) kind: EntryKind,
}

/// What a push on its way wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    /// To be applied, and answered by the tail.
    Push = 0,
    /// It was applied before: only an answer is wanted.
    Repeated = 1,
    /// The half of a push whose range was split: to be applied, and answered by nobody. Its worker sends it again.
    Half = 2,
    /// The half of a push that was applied before.
    RepeatedHalf = 3,
}

impl EntryKind {
    pub(crate) fn is_repeated(self) -> bool {
        matches!(self, Self::Repeated | Self::RepeatedHalf)
    }

    pub(crate) fn is_half(self) -> bool {
        matches!(self, Self::Half | Self::RepeatedHalf)
    }

    pub(crate) fn half(self) -> Self {
        match self.is_repeated() {
            true => Self::RepeatedHalf,
            false => Self::Half,
        }
    }
}

/// The end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PieceEnd {
    pub(crate) index: u64,
    /// The words of the filter.
    pub(crate) filter: Vec<u64>,
}

/// What is said of a piece of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PieceHead {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The version of the tail's map when the copy began.
    pub(crate) version: u64,
    pub(crate) stream: u64,
    pub(crate) begin: bool,
    pub(crate) app: u32,
    pub(crate) end: Option<PieceEnd>,
}

/// What servers send each other, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    /// A push on its way through the chain.
    Entry { head: EntryHead, op: Arc<Op> },
    /// All pushes up to this one are on all servers behind.
    Acknowledged { first: u64, mode: Mode, index: u64 },
    /// A piece of a range for a learner: the bytes of a chunk of a store, empty at the end.
    Piece { head: PieceHead, chunk: Bytes },
    /// The learner has it.
    PieceTaken { first: u64, stream: u64 },
}

/// What a server tells the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(crate) enum Report {
    /// The learner has all that was acknowledged.
    InSync {
        first: u64,
        join: u64,
    },
    /// The server serves the range no more.
    Stopped {
        first: u64,
        ticket: u64,
    },
    /// What the server serves is saved.
    Saved {
        ticket: u64,
        ranges: Vec<SavedRange>,
    },
    NotSaved {
        ticket: u64,
        reason: String,
    },
    /// The server has loaded the values of its ranges.
    Loaded {
        ticket: u64,
    },
    NotLoaded {
        ticket: u64,
        reason: String,
    },
    /// Its copies differ from those of others, which is a mistake of the program. It serves nothing any more.
    Failed {
        reason: String,
    },
}

/// What the coordinator tells a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Copy the range to a learner.
    Attach {
        first: u64,
        learner: NodeId,
        join: u64,
    },
    /// Serve the range no more.
    Stop { first: u64, ticket: u64 },
    /// Serve the range after all.
    Resume { first: u64 },
    /// Save the ranges of these keys that the server serves, in a snapshot of this number.
    Save {
        number: u64,
        ticket: u64,
        /// First and last keys.
        keys: Vec<(u64, u64)>,
    },
    /// Load the values of these ranges from a snapshot: the first map will give them to the server.
    Load {
        number: u64,
        ticket: u64,
        /// First and last keys.
        ranges: Vec<(u64, u64)>,
    },
}

/// What a server wants done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Answer {
        origin: Origin,
        /// The version of the server's map.
        version: u64,
        keys: usize,
        found: Option<FoundBytes>,
    },
    Refuse {
        origin: Origin,
        version: u64,
        refusal: Refusal,
    },
    Send {
        to: NodeId,
        message: Message,
    },
    Report(Report),
    /// Save these ranges.
    Save {
        number: u64,
        ticket: u64,
        ranges: Vec<KeyRange>,
    },
    /// Load these ranges.
    Load {
        number: u64,
        ticket: u64,
        ranges: Vec<KeyRange>,
    },
    /// The copies of a range differ, which is a mistake of the program.
    Diverged(String),
}

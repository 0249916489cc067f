//! The frames between leaders.
//!
//! ```text
//! frame     64 fields, 16 tag of the fields | payload, 16 tag of the payload, if there is a payload
//! fields
//! data      u32 magic, u8 1, 3 x 0 | u32 code, u32 root | u64 len | u64 seq | u32 index, u32 payload | u32 rank ...
//! question  the same with u8 3 and no payload
//! failure   u32 magic, u8 2, 3 x 0 | 8 x 0              | 6 x u64 record
//! ```
//! Little-endian. The tags are those of `protection`. `index` counts the frames of one operation in one direction. A leader
//! that has waited for long sends a question: it names its operation, and the receiver compares it
//! with its own.

use super::protection::TAG;
use crate::{error::Record, signature::CallSignature};

/// Bytes of the fields of a header.
pub(super) const FIELDS: usize = 64;
/// Bytes of a header: the fields and their tag.
pub(super) const HEAD: usize = FIELDS + TAG;
const MAGIC: u32 = 0x4644_5245;
const DATA: u8 = 1;
const FAILURE: u8 = 2;
const QUESTION: u8 = 3;

/// The fields of a data frame or a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) call: CallSignature,
    pub(super) index: u32,
    pub(super) payload: u32,
    /// Rank of the sender. Not compared.
    pub(super) rank: u32,
}

/// A decoded header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data(Head),
    Question(Head),
    Failure(Record),
}

impl Head {
    pub(super) fn encode(&self) -> [u8; FIELDS] {
        self.encode_as(DATA)
    }

    pub(super) fn encode_question(&self) -> [u8; FIELDS] {
        self.encode_as(QUESTION)
    }

    fn encode_as(&self, kind: u8) -> [u8; FIELDS] {
        let mut bytes = start(kind);
        bytes[8..12].copy_from_slice(&self.call.code.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.call.root.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.call.len.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.call.seq.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.index.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.payload.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.rank.to_le_bytes());
        bytes
    }
}

pub(super) fn encode_failure(record: &Record) -> [u8; FIELDS] {
    let mut bytes = start(FAILURE);
    for (cell, word) in bytes[16..].chunks_exact_mut(8).zip(record.0) {
        cell.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn start(kind: u8) -> [u8; FIELDS] {
    let mut bytes = [0; FIELDS];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4] = kind;
    bytes
}

/// Decodes the fields of a header. `None` if it is invalid.
pub(super) fn decode(bytes: &[u8; FIELDS]) -> Option<Frame> {
    let word = |pos: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[pos..pos + 4]);
        u32::from_le_bytes(word)
    };
    let long = |pos: usize| u64::from(word(pos)) | u64::from(word(pos + 4)) << 32;
    if word(0) != MAGIC {
        return None;
    }
    let head = || Head {
        call: CallSignature {
            code: word(8),
            root: word(12),
            len: long(16),
            seq: long(24),
        },
        index: word(32),
        payload: word(36),
        rank: word(40),
    };
    match bytes[4] {
        DATA => Some(Frame::Data(head())),
        QUESTION => Some(Frame::Question(head())),
        FAILURE => {
            let mut record = Record::default();
            for (index, cell) in record.0.iter_mut().enumerate() {
                *cell = long(16 + index * 8);
            }
            Some(Frame::Failure(record))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        let head = Head {
            call: CallSignature {
                code: 0x0102_0304,
                root: 5,
                len: u64::MAX - 3,
                seq: 1 << 40,
            },
            index: 6,
            payload: 7,
            rank: 8,
        };
        assert_eq!(decode(&head.encode()), Some(Frame::Data(head)));
        assert_eq!(decode(&head.encode_question()), Some(Frame::Question(head)));
        let record = Record([1, 2, 3, 4, 5, u64::MAX]);
        assert_eq!(
            decode(&encode_failure(&record)),
            Some(Frame::Failure(record))
        );
        assert_eq!(decode(&[0; FIELDS]), None);
        assert_eq!(decode(&start(9)), None);
    }
}

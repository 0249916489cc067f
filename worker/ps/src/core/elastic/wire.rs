//! Messages of elastic servers as frames: words in front of the keys say what the header has no place for.

use bytes::Bytes;

use super::{
    filter::Identity,
    message::{Body, EntryHead, EntryKind, Message, Mode, Origin, PieceEnd, PieceHead},
};
use crate::core::{
    frame::{Header, Kind, PULL, PUSH},
    node::NodeId,
};

const ENTRY: u64 = 1;
const ACKNOWLEDGED: u64 = 2;
const PIECE: u64 = 3;
const PIECE_TAKEN: u64 = 4;

/// Marks of a message, in the upper half of its first word.
const LEARNER: u64 = 1 << 32;
const BEGIN: u64 = 1 << 33;
const END: u64 = 1 << 34;
/// The kind of an entry is from this bit on.
const KIND: u32 = 40;

/// A message as it came, without memory of its own.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    Entry {
        head: EntryHead,
        origin: Origin,
        body: Body<'a>,
    },
    Acknowledged {
        first: u64,
        mode: Mode,
        index: u64,
    },
    Piece {
        head: PieceHead,
        chunk: &'a [u8],
    },
    PieceTaken {
        first: u64,
        stream: u64,
    },
}

/// What a request says in its header.
pub(crate) fn origin_of(header: &Header) -> Origin {
    Origin {
        identity: Identity {
            worker: header.sender,
            session: header.session,
            timestamp: header.timestamp,
        },
        floor: match header.back {
            u16::MAX => 0,
            back => header.timestamp.saturating_sub(u64::from(back)),
        },
        app: header.app,
        customer: header.customer,
        cmd: header.cmd,
        priority: header.priority,
        part: header.part,
        flags: header.flags & (PUSH | PULL),
        dtype: header.dtype,
    }
}

/// How far the floor is behind the timestamp. The largest number says that it is unknown.
pub(crate) fn back_of(timestamp: u64, floor: u64) -> u16 {
    u16::try_from(timestamp - floor.min(timestamp)).unwrap_or(u16::MAX)
}

/// The header of the answer to a request, without keys and values.
pub(crate) fn answer_header(origin: &Origin, sender: NodeId, version: u64) -> Header {
    Header {
        app: origin.app,
        customer: origin.customer,
        cmd: origin.cmd,
        timestamp: origin.identity.timestamp,
        session: origin.identity.session,
        part: origin.part,
        priority: origin.priority,
        map_version: version,
        ..Header::new(Kind::Data, origin.flags, sender)
    }
}

fn mode_words(mode: Mode) -> (u64, u64) {
    match mode {
        Mode::Chain(version) => (0, version),
        Mode::Learner(stream) => (LEARNER, stream),
    }
}

fn bytes<T: bytemuck::Pod + Send + Sync>(words: Vec<T>) -> Bytes {
    crate::array::Array::from(words).bytes()
}

/// A message as a frame.
pub(crate) fn encode(message: &Message, sender: NodeId) -> (Header, [Bytes; 3]) {
    let header = Header::new(Kind::Chain, 0, sender);
    match message {
        Message::Entry { head, op } => {
            let origin = &op.origin;
            let (mark, mode) = mode_words(head.mode);
            let node = u64::from(origin.identity.worker.0) << 32;
            let mut words = vec![
                ENTRY | mark | (head.kind as u64) << KIND,
                head.first,
                mode,
                head.index,
                node | u64::from(origin.priority as u32),
                origin.floor,
            ];
            words.extend_from_slice(&op.keys);
            let header = Header {
                flags: origin.flags,
                dtype: origin.dtype,
                app: origin.app,
                customer: origin.customer,
                cmd: origin.cmd,
                timestamp: origin.identity.timestamp,
                session: origin.identity.session,
                part: origin.part,
                keys: words.len() as u32,
                lens: op.lens.len() as u32,
                per_key: op.per_key,
                value_bytes: op.values.len() as u64,
                ..header
            };
            let lens = bytes(op.lens.clone());
            (header, [bytes(words), lens, op.values.clone()])
        }
        Message::Acknowledged { first, mode, index } => {
            let (mark, mode) = mode_words(*mode);
            short(header, vec![ACKNOWLEDGED | mark, *first, mode, *index])
        }
        Message::Piece { head, chunk } => {
            let begin = if head.begin { BEGIN } else { 0 };
            let end = if head.end.is_some() { END } else { 0 };
            let (index, filter) = match &head.end {
                Some(end) => (end.index, &end.filter[..]),
                None => (0, &[][..]),
            };
            let mut words = vec![
                PIECE | begin | end,
                head.first,
                head.last,
                head.version,
                head.stream,
                index,
                filter.len() as u64,
            ];
            words.extend_from_slice(filter);
            let header = Header {
                app: head.app,
                keys: words.len() as u32,
                value_bytes: chunk.len() as u64,
                ..header
            };
            (header, [bytes(words), Bytes::new(), chunk.clone()])
        }
        Message::PieceTaken { first, stream } => short(header, vec![PIECE_TAKEN, *first, *stream]),
    }
}

fn short(header: Header, words: Vec<u64>) -> (Header, [Bytes; 3]) {
    let header = Header {
        keys: words.len() as u32,
        ..header
    };
    (header, [bytes(words), Bytes::new(), Bytes::new()])
}

/// A frame as a message. `None` if it is none.
pub(crate) fn decode<'a>(
    header: &Header,
    words: &'a [u64],
    lens: &'a [u32],
    values: &'a [u8],
) -> Option<Incoming<'a>> {
    let (&tag, words) = words.split_first()?;
    let mode = |word: u64| match tag & LEARNER {
        0 => Mode::Chain(word),
        _ => Mode::Learner(word),
    };
    Some(match tag & 0xffff_ffff {
        ENTRY => {
            let [first, number, index, node, floor, keys @ ..] = words else {
                return None;
            };
            let kinds = [
                EntryKind::Push,
                EntryKind::Repeated,
                EntryKind::Half,
                EntryKind::RepeatedHalf,
            ];
            Incoming::Entry {
                head: EntryHead {
                    first: *first,
                    mode: mode(*number),
                    index: *index,
                    kind: *kinds.get((tag >> KIND) as usize)?,
                },
                origin: Origin {
                    identity: Identity {
                        worker: NodeId((node >> 32) as u32),
                        ..origin_of(header).identity
                    },
                    floor: *floor,
                    priority: *node as u32 as i32,
                    ..origin_of(header)
                },
                body: Body {
                    keys,
                    lens,
                    per_key: header.per_key,
                    values,
                },
            }
        }
        ACKNOWLEDGED => {
            let [first, number, index] = *words else {
                return None;
            };
            let mode = mode(number);
            Incoming::Acknowledged { first, mode, index }
        }
        PIECE => {
            let [first, last, version, stream, index, filter, rest @ ..] = words else {
                return None;
            };
            if usize::try_from(*filter) != Ok(rest.len()) {
                return None;
            }
            let end = PieceEnd {
                index: *index,
                filter: rest.to_vec(),
            };
            Incoming::Piece {
                head: PieceHead {
                    first: *first,
                    last: *last,
                    version: *version,
                    stream: *stream,
                    begin: tag & BEGIN != 0,
                    app: header.app,
                    end: (tag & END != 0).then_some(end),
                },
                chunk: values,
            }
        }
        PIECE_TAKEN => {
            let [first, stream] = *words else { return None };
            Incoming::PieceTaken { first, stream }
        }
        _ => return None,
    })
}

#[cfg(test)]
impl Incoming<'_> {
    /// The message with memory of its own.
    pub(crate) fn to_message(&self) -> Message {
        match self {
            Self::Entry { head, origin, body } => Message::Entry {
                head: *head,
                op: std::sync::Arc::new(super::message::Op::new(*origin, *body)),
            },
            Self::Acknowledged { first, mode, index } => Message::Acknowledged {
                first: *first,
                mode: *mode,
                index: *index,
            },
            Self::Piece { head, chunk } => Message::Piece {
                head: head.clone(),
                chunk: Bytes::copy_from_slice(chunk),
            },
            Self::PieceTaken { first, stream } => Message::PieceTaken {
                first: *first,
                stream: *stream,
            },
        }
    }
}

//! The header of a frame; docs/design/parameter-server.md draws it.

use super::{
    keys::{MAX_KEYS, MAX_VALUE_BYTES},
    node::NodeId,
};

/// Bytes of a header.
pub(crate) const HEADER: usize = 80;

const MAGIC: u32 = 0x5350_5245;
/// The most values of a frame that is none of data: acknowledgements, control, simple messages, failures.
const MAX_SMALL_BYTES: u64 = 16 << 20;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    Data = 1,
    Simple = 2,
    Control = 3,
    Acknowledgement = 4,
    /// Among elastic servers.
    Chain = 5,
}

pub(crate) const REQUEST: u8 = 1;
pub(crate) const PUSH: u8 = 2;
pub(crate) const PULL: u8 = 4;
pub(crate) const FAILURE: u8 = 8;
/// On the wire only: the payload is in memory that both ends share, and its position is behind the header.
pub(crate) const SHARED: u8 = 16;

/// Bytes of the position of a payload in shared memory.
pub(crate) const POSITION: usize = 8;

/// The fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    /// The code of the type of values. 0 without values of a type.
    pub(crate) dtype: u8,
    pub(crate) sender: NodeId,
    pub(crate) app: u32,
    pub(crate) customer: u32,
    pub(crate) cmd: i32,
    pub(crate) timestamp: u64,
    /// For resends. 0 if the frame is sent once.
    pub(crate) sequence: u64,
    pub(crate) map_version: u64,
    pub(crate) keys: u32,
    pub(crate) lens: u32,
    /// How many values each key has, if equally many.
    pub(crate) per_key: u32,
    pub(crate) priority: i32,
    pub(crate) value_bytes: u64,
    /// Of elastic requests: which `KvWorker` of its process sends it.
    pub(crate) session: u32,
    /// The number of the part of the request.
    pub(crate) part: u16,
    /// How far behind the timestamp the lowest one is that the worker waits for.
    pub(crate) back: u16,
}

/// Why bytes are no header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes do not begin with the mark of a frame.
    #[error("it sent something that is no frame")]
    NoFrame,
    /// A kind or flags of a later release.
    #[error(
        "it sent a frame of unknown kind {kind} with flags {flags}: install the same release on all hosts"
    )]
    Unknown {
        /// The kind.
        kind: u8,
        /// The flags.
        flags: u8,
    },
    /// A length that no frame has.
    #[error(
        "it sent a frame with {keys} keys, {lens} lens and {value_bytes} bytes of values, over the limits"
    )]
    TooLarge {
        /// Number of keys.
        keys: u32,
        /// Number of lens.
        lens: u32,
        /// Bytes of values.
        value_bytes: u64,
    },
    /// A payload that is not in the memory that both ends share.
    #[error("it sent {bytes} bytes at {position} of shared memory, which are not there")]
    OutOfMemory {
        /// Where they should be.
        position: u64,
        /// Bytes of the payload.
        bytes: u64,
    },
    /// The connection begins with something else.
    #[error("it does not speak the protocol of the parameter server")]
    NoOpening,
    /// The other end is another release.
    #[error(
        "it runs another release of the parameter server (version {version}): install the same release on all hosts"
    )]
    OtherRelease {
        /// Its version.
        version: u8,
    },
}

impl Header {
    /// A header without keys and values.
    pub(crate) fn new(kind: Kind, flags: u8, sender: NodeId) -> Self {
        Self {
            kind,
            flags,
            dtype: 0,
            sender,
            app: 0,
            customer: 0,
            cmd: 0,
            timestamp: 0,
            sequence: 0,
            map_version: 0,
            keys: 0,
            lens: 0,
            per_key: 0,
            priority: 0,
            value_bytes: 0,
            session: 0,
            part: 0,
            back: 0,
        }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Bytes of keys, lens and values.
    pub(crate) fn payload(&self) -> u64 {
        u64::from(self.keys) * 8 + u64::from(self.lens) * 4 + self.value_bytes
    }

    /// Bytes behind the header, as it came from the socket.
    pub(crate) fn on_socket(&self) -> u64 {
        match self.has(SHARED) {
            true => POSITION as u64,
            false => self.payload(),
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.flags;
        bytes[6] = self.dtype;
        let words = [self.sender.0, self.app, self.customer, self.cmd as u32];
        put(&mut bytes[8..24], words.map(u32::to_le_bytes));
        let longs = [self.timestamp, self.sequence, self.map_version];
        put(&mut bytes[24..48], longs.map(u64::to_le_bytes));
        let words = [self.keys, self.lens, self.per_key, self.priority as u32];
        put(&mut bytes[48..64], words.map(u32::to_le_bytes));
        bytes[64..72].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[72..76].copy_from_slice(&self.session.to_le_bytes());
        put(
            &mut bytes[76..],
            [self.part, self.back].map(u16::to_le_bytes),
        );
        bytes
    }

    /// Reads and checks a header.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Result<Self, FrameError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(0) != MAGIC {
            return Err(FrameError::NoFrame);
        }
        let (kind, flags) = (bytes[4], bytes[5]);
        let kinds = [
            Kind::Data,
            Kind::Simple,
            Kind::Control,
            Kind::Acknowledgement,
            Kind::Chain,
        ];
        let known = kinds.into_iter().find(|known| *known as u8 == kind);
        let Some(kind) = known.filter(|_| flags < 32) else {
            return Err(FrameError::Unknown { kind, flags });
        };
        let header = Self {
            kind,
            flags,
            dtype: bytes[6],
            sender: NodeId(word(8)),
            app: word(12),
            customer: word(16),
            cmd: word(20) as i32,
            timestamp: long(24),
            sequence: long(32),
            map_version: long(40),
            keys: word(48),
            lens: word(52),
            per_key: word(56),
            priority: word(60) as i32,
            value_bytes: long(64),
            session: word(72),
            part: word(76) as u16,
            back: (word(76) >> 16) as u16,
        };
        let small = !matches!(kind, Kind::Data | Kind::Chain) || header.has(FAILURE);
        let max_bytes = if small {
            MAX_SMALL_BYTES
        } else {
            MAX_VALUE_BYTES
        };
        let max_keys = if small { 0 } else { MAX_KEYS as u32 };
        if header.keys > max_keys || header.lens > max_keys || header.value_bytes > max_bytes {
            return Err(FrameError::TooLarge {
                keys: header.keys,
                lens: header.lens,
                value_bytes: header.value_bytes,
            });
        }
        Ok(header)
    }
}

/// Says in an encoded header that the payload is in shared memory.
pub(crate) fn mark_shared(header: &mut [u8; HEADER]) {
    header[5] |= SHARED;
}

fn put<const N: usize>(bytes: &mut [u8], numbers: impl IntoIterator<Item = [u8; N]>) {
    for (cell, number) in bytes.chunks_exact_mut(N).zip(numbers) {
        cell.copy_from_slice(&number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            dtype: 11,
            app: 3,
            customer: 4,
            cmd: -5,
            timestamp: 1 << 40,
            sequence: 7,
            map_version: 8,
            keys: 9,
            lens: 10,
            per_key: 11,
            priority: -12,
            value_bytes: 1 << 33,
            session: 13,
            part: 14,
            back: 15,
            ..Header::new(Kind::Data, REQUEST | PUSH | PULL, NodeId(9))
        }
    }

    #[test]
    fn headers_come_back_as_they_were() {
        assert_eq!(Header::decode(&header().encode()), Ok(header()));
        assert_eq!(header().payload(), 72 + 40 + (1 << 33));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut bytes = header().encode();
        bytes[5] = 32;
        assert_eq!(
            Header::decode(&bytes),
            Err(FrameError::Unknown { kind: 1, flags: 32 })
        );
        let large = Header {
            value_bytes: MAX_VALUE_BYTES + 1,
            ..header()
        };
        assert!(matches!(
            Header::decode(&large.encode()),
            Err(FrameError::TooLarge { .. })
        ));
        let control = Header {
            keys: 1,
            ..Header::new(Kind::Control, 0, NodeId(1))
        };
        assert!(matches!(
            Header::decode(&control.encode()),
            Err(FrameError::TooLarge { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_an_error(bytes: [u8; 32], rest: [u8; 32], end: [u8; 16], marked: bool) {
            let mut all = [0; HEADER];
            all[..32].copy_from_slice(&bytes);
            all[32..64].copy_from_slice(&rest);
            all[64..].copy_from_slice(&end);
            if marked {
                all[..4].copy_from_slice(&MAGIC.to_le_bytes());
                all[4] = all[4] % 5 + 1;
                all[5] %= 32;
            }
            if let Ok(header) = Header::decode(&all) {
                prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
                prop_assert!(header.payload() <= MAX_VALUE_BYTES + MAX_KEYS as u64 * 12);
            }
        }
    }
}

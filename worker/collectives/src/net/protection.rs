//! Authentication and encryption of the frames of a connection.
//!
//! Both ends derive one key per direction from the key of the run and from all that the handshake
//! carried, so no two connections have a key in common. The cipher is AEGIS-128X4, whose tag covers
//! 128 bits. A frame has up to two tags: one of its header and one of its payload. Without
//! encryption, the bytes are the associated data of an empty message. With encryption, they are the
//! message.
//!
//! # Invariants
//! - P1 No nonce repeats under a key with other bytes on the wire: a nonce is the number of the frame
//!   in its direction and the part of the frame.
//! - P2 A receiver uses a number that it counted itself. So a frame that was changed, repeated,
//!   dropped, moved or inserted has no valid tag.
//! - P3 Nothing of a frame is used before its tag is verified, except the length of its payload, which
//!   the receiver knows beforehand.

use std::fmt;

use aegis::aegis128x4::{Aegis128X4, Key, Nonce};
use hkdf::Hkdf;
use sha2::Sha256;

use super::frame::{FIELDS, HEAD};

/// Bytes of a tag.
pub(super) const TAG: usize = 16;

type Cipher = Aegis128X4<TAG>;

/// A part of a frame that has a tag of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Part {
    Head = 1,
    Payload = 2,
    /// In place of the payload's tag: the sender ends the connection in the middle of the payload.
    Cancelled = 3,
}

/// A tag that does not fit: the bytes were changed on the way, or are of another frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Altered;

/// The keys of a connection, as one end uses them.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Connector,
    Acceptor,
}

impl Session {
    /// Derives the keys. `transcript` has the handshake's messages, nonces of both ends included.
    pub(super) fn derive(key: &[u8; 32], transcript: &[&[u8]], encrypt: bool, role: Role) -> Self {
        let derivation = Hkdf::<Sha256>::new(Some(&transcript.concat()), key);
        let direction = |label: &[u8]| {
            let mut key = Key::default();
            derivation
                .expand_multi_info(
                    &[b"elasticrun data plane frames from the ", label],
                    &mut key,
                )
                .expect("a key is shorter than the maximum output");
            Direction {
                key,
                number: 0,
                encrypt,
            }
        };
        let (from_connector, from_acceptor) = (direction(b"connector"), direction(b"acceptor"));
        let (sends, receives) = match role {
            Role::Connector => (from_connector, from_acceptor),
            Role::Acceptor => (from_acceptor, from_connector),
        };
        Self {
            sealer: Sealer(sends),
            opener: Opener(receives),
        }
    }
}

/// One direction of a connection.
struct Direction {
    key: Key,
    /// Frames before the current one.
    number: u64,
    encrypt: bool,
}

impl Direction {
    fn cipher(&self, part: Part) -> Cipher {
        let mut nonce = Nonce::default();
        nonce[..8].copy_from_slice(&self.number.to_le_bytes());
        nonce[8] = part as u8;
        Cipher::new(&self.key, &nonce)
    }
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direction")
            .field("number", &self.number)
            .field("encrypt", &self.encrypt)
            .finish_non_exhaustive()
    }
}

/// Seals the frames that this end sends. The number of the frame changes by [`Sealer::advance`] only.
#[derive(Debug)]
pub(super) struct Sealer(Direction);

impl Sealer {
    /// A header with its tag.
    pub(super) fn seal_head(&self, fields: &[u8; FIELDS]) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        let (body, tag) = head.split_at_mut(FIELDS);
        body.copy_from_slice(fields);
        let cipher = self.0.cipher(Part::Head);
        tag.copy_from_slice(&if self.0.encrypt {
            cipher.encrypt_in_place(body, &[])
        } else {
            cipher.encrypt_in_place(&mut [], body)
        });
        head
    }

    /// Returns the tag of a payload. With encryption, `sealed` gets the bytes to send in its place.
    pub(super) fn seal_payload(&self, payload: &[u8], sealed: &mut Vec<u8>) -> [u8; TAG] {
        let cipher = self.0.cipher(Part::Payload);
        if self.0.encrypt {
            sealed.clear();
            sealed.extend_from_slice(payload);
            cipher.encrypt_in_place(sealed, &[])
        } else {
            cipher.encrypt_in_place(&mut [], payload)
        }
    }

    /// The tag behind a payload that was completed with other bytes.
    pub(super) fn cancelled(&self) -> [u8; TAG] {
        self.0
            .cipher(Part::Cancelled)
            .encrypt_in_place(&mut [], &[])
    }

    pub(super) fn encrypts(&self) -> bool {
        self.0.encrypt
    }

    /// Goes on to the next frame.
    pub(super) fn advance(&mut self) {
        self.0.number += 1;
    }
}

/// Opens the frames that this end receives. The number of the frame changes by [`Opener::advance`]
/// only.
#[derive(Debug)]
pub(super) struct Opener(Direction);

impl Opener {
    /// The fields of a header.
    pub(super) fn open_head(&self, head: &[u8; HEAD]) -> Result<[u8; FIELDS], Altered> {
        let mut fields = [0; FIELDS];
        fields.copy_from_slice(&head[..FIELDS]);
        let mut tag = [0; TAG];
        tag.copy_from_slice(&head[FIELDS..]);
        self.open(Part::Head, &mut fields, &tag)?;
        Ok(fields)
    }

    /// Verifies a payload and, with encryption, decrypts it. Its contents are undefined after an
    /// error.
    pub(super) fn open_payload(&self, payload: &mut [u8], tag: &[u8; TAG]) -> Result<(), Altered> {
        self.open(Part::Payload, payload, tag)
    }

    /// Whether the tag behind a payload says that its sender has ended the connection.
    pub(super) fn is_cancelled(&self, tag: &[u8; TAG]) -> bool {
        self.0
            .cipher(Part::Cancelled)
            .decrypt_in_place(&mut [], tag, &[])
            .is_ok()
    }

    fn open(&self, part: Part, bytes: &mut [u8], tag: &[u8; TAG]) -> Result<(), Altered> {
        let cipher = self.0.cipher(part);
        let opened = if self.0.encrypt {
            cipher.decrypt_in_place(bytes, tag, &[])
        } else {
            cipher.decrypt_in_place(&mut [], tag, bytes)
        };
        opened.map_err(|_| Altered)
    }

    /// Goes on to the next frame.
    pub(super) fn advance(&mut self) {
        self.0.number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [5; 32];

    fn pair(encrypt: bool) -> (Sealer, Opener) {
        let derive = |role| Session::derive(&KEY, &[b"hello", b"challenge"], encrypt, role);
        (
            derive(Role::Connector).sealer,
            derive(Role::Acceptor).opener,
        )
    }

    #[test]
    fn both_ends_agree_in_both_directions_and_the_directions_differ() {
        for encrypt in [false, true] {
            let derive = |role| Session::derive(&KEY, &[b"transcript"], encrypt, role);
            let (one, other) = (derive(Role::Connector), derive(Role::Acceptor));
            let fields = [3; FIELDS];
            for (sealer, opener) in [(&one.sealer, &other.opener), (&other.sealer, &one.opener)] {
                assert_eq!(opener.open_head(&sealer.seal_head(&fields)), Ok(fields));
            }
            // What an end sent is nothing that it accepts itself.
            let reflected = one.sealer.seal_head(&fields);
            assert_eq!(one.opener.open_head(&reflected), Err(Altered));
        }
    }

    #[test]
    fn any_changed_byte_of_a_header_is_found() {
        for encrypt in [false, true] {
            let (sealer, opener) = pair(encrypt);
            let head = sealer.seal_head(&[7; FIELDS]);
            for index in 0..HEAD {
                let mut changed = head;
                changed[index] ^= 0x10;
                assert_eq!(opener.open_head(&changed), Err(Altered), "byte {index}");
            }
        }
    }

    #[test]
    fn any_changed_byte_of_a_payload_is_found() {
        for encrypt in [false, true] {
            let (sealer, opener) = pair(encrypt);
            let payload: Vec<u8> = (0..200).collect();
            let mut sealed = Vec::new();
            let tag = sealer.seal_payload(&payload, &mut sealed);
            let sent = if encrypt { sealed } else { payload.clone() };
            assert_eq!(sent != payload, encrypt);
            for index in 0..sent.len() + TAG {
                let (mut bytes, mut changed) = (sent.clone(), tag);
                match index.checked_sub(bytes.len()) {
                    None => bytes[index] ^= 1,
                    Some(index) => changed[index] ^= 1,
                }
                let opened = opener.open_payload(&mut bytes, &changed);
                assert_eq!(opened, Err(Altered), "byte {index}");
            }
            let mut bytes = sent;
            assert_eq!(opener.open_payload(&mut bytes, &tag), Ok(()));
            assert_eq!(bytes, payload);
        }
    }

    #[test]
    fn a_tag_fits_one_part_of_one_frame_only() {
        let (mut sealer, mut opener) = pair(false);
        let head = sealer.seal_head(&[1; FIELDS]);
        let tag = sealer.seal_payload(&[2; 9], &mut Vec::new());
        let cancelled = sealer.cancelled();
        assert!(opener.is_cancelled(&cancelled) && !opener.is_cancelled(&tag));
        assert_eq!(opener.open_payload(&mut [2; 9], &cancelled), Err(Altered));
        assert_eq!(opener.open_payload(&mut [], &cancelled), Err(Altered));
        opener.advance();
        assert_eq!(opener.open_head(&head), Err(Altered));
        assert_eq!(opener.open_payload(&mut [2; 9], &tag), Err(Altered));
        assert!(!opener.is_cancelled(&cancelled));
        sealer.advance();
        let next = sealer.seal_head(&[1; FIELDS]);
        assert_ne!(next, head);
        assert!(opener.open_head(&next).is_ok());
    }

    #[test]
    fn each_part_of_the_handshake_changes_the_keys() {
        let session = |key: &[u8; 32], transcript: &[&[u8]], encrypt| {
            Session::derive(key, transcript, encrypt, Role::Connector)
                .sealer
                .0
                .key
        };
        let mine = session(&KEY, &[b"round 5", b"nonce"], false);
        assert_eq!(mine, session(&KEY, &[b"round 5", b"nonce"], false));
        assert_ne!(mine, session(&[6; 32], &[b"round 5", b"nonce"], false));
        assert_ne!(mine, session(&KEY, &[b"round 6", b"nonce"], false));
        assert_ne!(mine, session(&KEY, &[b"round 5", b"other"], false));
    }

    #[test]
    fn keys_are_not_printed() {
        let printed = format!("{:?}", pair(true));
        assert!(!printed.contains("key"), "{printed}");
    }
}

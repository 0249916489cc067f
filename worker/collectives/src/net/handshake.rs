//! The three messages by which two leaders prove that they know the key and are in the same round.
//!
//! ```text
//! connector                                            acceptor
//!   Hello: 8 magic, round id, from, to, shape, protection, 32 nonce ->
//!                          <-  Challenge: 8 status, 32 nonce, 32 mac(acceptor, hello, status, nonce)
//!   Proof: 32 mac(connector, hello, status, nonce)      ->
//! ```
//! A mac is HMAC-SHA256 with the key of the run. It covers a label of the direction and all earlier
//! content, so a recorded message cannot be replayed later, in the other direction or in another
//! round. The keys of the frames that follow are derived from the hello and the challenge
//! (`protection`), so they differ for each connection.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::protection::{Role, Session};
use crate::{round_id::RoundId, topology::Topology};

/// The version of handshake and frames is the last byte.
const MAGIC: &[u8; 8] = b"ERCOLL\x00\x02";

/// Bytes from the start of a hello that identify the protocol and its version.
pub(super) const PREFIX: usize = MAGIC.len();
pub(super) const HELLO: usize = 80;
pub(super) const CHALLENGE: usize = 72;
pub(super) const PROOF: usize = 32;

/// The first message of a connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) round_id: RoundId,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) host_count: u32,
    pub(super) size: u32,
    /// Lowest rank of the connector's host.
    pub(super) first_rank: u32,
    /// Whether frames are encrypted.
    pub(super) encrypt: bool,
    pub(super) nonce: [u8; 32],
}

/// What the start of an inbound connection says about its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Ours,
    /// The data plane of another release.
    OtherRelease,
    Unknown,
}

impl Dialect {
    pub(super) fn of_prefix(prefix: &[u8]) -> Self {
        let (name, version) = MAGIC.split_at(PREFIX - 1);
        match prefix.split_at_checked(PREFIX - 1) {
            Some((found, rest)) if found == name && rest == version => Self::Ours,
            Some((found, _)) if found == name => Self::OtherRelease,
            _ => Self::Unknown,
        }
    }
}

/// The acceptor's verdict on a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Status {
    /// Continue with the proof.
    Welcome = 1,
    /// The acceptor is in a newer round.
    Stale = 2,
    /// Same round, but the shape of the round differs, or the hosts are no neighbours.
    Mismatched = 3,
}

impl Hello {
    pub(super) fn new(
        round_id: RoundId,
        topology: &Topology,
        to: u32,
        encrypt: bool,
    ) -> Result<Self, getrandom::Error> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce)?;
        Ok(Self {
            round_id,
            from: topology.host_index,
            to,
            host_count: topology.host_count,
            size: topology.size,
            first_rank: topology.first_rank,
            encrypt,
            nonce,
        })
    }

    pub(super) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.round_id.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.round_id.round.to_le_bytes());
        let numbers = [
            self.from,
            self.to,
            self.host_count,
            self.size,
            self.first_rank,
            u32::from(self.encrypt),
        ];
        for (cell, number) in bytes[24..48].chunks_exact_mut(4).zip(numbers) {
            cell.copy_from_slice(&number.to_le_bytes());
        }
        bytes[48..].copy_from_slice(&self.nonce);
        bytes
    }

    /// `None` if the bytes are no valid hello.
    pub(super) fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        if &bytes[..8] != MAGIC {
            return None;
        }
        let number = |pos: usize| {
            let mut number = [0; 4];
            number.copy_from_slice(&bytes[pos..pos + 4]);
            u32::from_le_bytes(number)
        };
        let long = |pos: usize| u64::from(number(pos)) | u64::from(number(pos + 4)) << 32;
        let mut nonce = [0; 32];
        nonce.copy_from_slice(&bytes[48..]);
        let encrypt = match number(44) {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self {
            round_id: RoundId {
                epoch: long(8),
                round: long(16),
            },
            from: number(24),
            to: number(28),
            host_count: number(32),
            size: number(36),
            first_rank: number(40),
            encrypt,
            nonce,
        })
    }
}

/// The acceptor's answer, and the proof that it expects.
#[derive(Debug)]
pub(super) struct Challenge {
    pub(super) bytes: [u8; CHALLENGE],
    expected: Hmac<Sha256>,
    session: Session,
}

impl Challenge {
    pub(super) fn new(
        key: &[u8; 32],
        hello: &[u8; HELLO],
        status: Status,
        encrypt: bool,
    ) -> Result<Self, getrandom::Error> {
        let mut bytes = [0; CHALLENGE];
        bytes[..8].copy_from_slice(&(status as u64).to_le_bytes());
        getrandom::fill(&mut bytes[8..40])?;
        let tag = mac(key, b"acceptor", hello, &bytes[..40]).finalize();
        bytes[40..].copy_from_slice(&tag.into_bytes());
        let expected = mac(key, b"connector", hello, &bytes[..40]);
        let session = Session::derive(key, &[hello, &bytes], encrypt, Role::Acceptor);
        Ok(Self {
            bytes,
            expected,
            session,
        })
    }

    /// The keys of the connection, if the connector knows the key of the run. Takes the same time
    /// for any wrong proof.
    pub(super) fn accept(self, proof: &[u8; PROOF]) -> Option<Session> {
        self.expected.verify_slice(proof).ok()?;
        Some(self.session)
    }
}

/// The connector's view of a valid challenge.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    /// What to send if the status is [`Status::Welcome`].
    pub(super) proof: [u8; PROOF],
    pub(super) session: Session,
}

/// Checks an acceptor's answer to `hello`. `None` if the acceptor does not know the key or its status
/// is unknown.
pub(super) fn answer(
    key: &[u8; 32],
    hello: &[u8; HELLO],
    challenge: &[u8; CHALLENGE],
    encrypt: bool,
) -> Option<Answer> {
    let signed = &challenge[..40];
    mac(key, b"acceptor", hello, signed)
        .verify_slice(&challenge[40..])
        .ok()?;
    let status = [Status::Welcome, Status::Stale, Status::Mismatched]
        .into_iter()
        .find(|status| (*status as u64).to_le_bytes() == signed[..8])?;
    let proof = mac(key, b"connector", hello, signed)
        .finalize()
        .into_bytes();
    Some(Answer {
        status,
        proof: proof.into(),
        session: Session::derive(key, &[hello, challenge], encrypt, Role::Connector),
    })
}

fn mac(key: &[u8; 32], label: &[u8], hello: &[u8; HELLO], signed: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("hmac takes keys of any length");
    mac.update(b"elasticrun data plane ");
    mac.update(label);
    mac.update(hello);
    mac.update(signed);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::frame::FIELDS;

    fn hello() -> Hello {
        Hello {
            round_id: RoundId {
                epoch: 1 << 40,
                round: 7,
            },
            from: 3,
            to: 2,
            host_count: 4,
            size: 9,
            first_rank: 6,
            encrypt: false,
            nonce: [8; 32],
        }
    }

    #[test]
    fn both_sides_prove_themselves_and_have_the_same_keys() {
        for encrypt in [false, true] {
            let hello = Hello { encrypt, ..hello() };
            let bytes = hello.encode();
            assert_eq!(Hello::decode(&bytes), Some(hello));
            for status in [Status::Welcome, Status::Stale, Status::Mismatched] {
                let challenge = Challenge::new(&[1; 32], &bytes, status, encrypt).unwrap();
                let found = answer(&[1; 32], &bytes, &challenge.bytes, encrypt).unwrap();
                assert_eq!(found.status, status);
                let session = challenge.accept(&found.proof).unwrap();
                let head = found.session.sealer.seal_head(&[4; FIELDS]);
                assert_eq!(session.opener.open_head(&head), Ok([4; FIELDS]));
            }
        }
    }

    #[test]
    fn a_wrong_key_or_a_changed_bit_is_refused_by_both() {
        let bytes = hello().encode();
        let challenge = Challenge::new(&[1; 32], &bytes, Status::Welcome, false).unwrap();
        assert!(answer(&[2; 32], &bytes, &challenge.bytes, false).is_none());
        for index in 0..CHALLENGE {
            let mut changed = challenge.bytes;
            changed[index] ^= 1;
            let found = answer(&[1; 32], &bytes, &changed, false);
            assert!(found.is_none(), "byte {index}");
        }
        let sent = challenge.bytes;
        let mut reflected = [0; PROOF];
        reflected.copy_from_slice(&sent[40..]);
        assert!(challenge.accept(&reflected).is_none());
        assert_eq!(Hello::decode(&[0; HELLO]), None);
    }

    #[test]
    fn each_connection_round_and_driver_has_other_keys() {
        let head_in = |round_id: RoundId| {
            let hello = Hello {
                round_id,
                ..hello()
            };
            let bytes = hello.encode();
            let challenge = Challenge::new(&[1; 32], &bytes, Status::Welcome, false).unwrap();
            challenge.session.sealer.seal_head(&[4; FIELDS])
        };
        let round_id = hello().round_id;
        let next = RoundId {
            round: 8,
            ..round_id
        };
        let newer = RoundId {
            epoch: round_id.epoch + 1,
            ..round_id
        };
        let heads = [round_id, round_id, next, newer].map(head_in);
        for (index, head) in heads.iter().enumerate() {
            assert!(!heads[..index].contains(head), "{index}");
        }
    }

    #[test]
    fn a_recorded_hello_does_not_give_the_keys_of_another_round() {
        let bytes = hello().encode();
        let challenge = Challenge::new(&[1; 32], &bytes, Status::Welcome, false).unwrap();
        let found = answer(&[1; 32], &bytes, &challenge.bytes, false).unwrap();
        // The same nonces, with a round that somebody on the way has changed.
        for index in 8..24 {
            let mut changed = bytes;
            changed[index] ^= 1;
            let other = Session::derive(
                &[1; 32],
                &[&changed, &challenge.bytes],
                false,
                Role::Acceptor,
            );
            let head = found.session.sealer.seal_head(&[4; FIELDS]);
            assert!(other.opener.open_head(&head).is_err(), "byte {index}");
        }
    }

    #[test]
    fn another_release_is_told_from_a_stranger() {
        let bytes = hello().encode();
        assert_eq!(Dialect::of_prefix(&bytes[..PREFIX]), Dialect::Ours);
        for (prefix, dialect) in [
            (&b"ERCOLL\0\x01"[..], Dialect::OtherRelease),
            (b"ERCOLL\0\x03", Dialect::OtherRelease),
            (b"GET / HT", Dialect::Unknown),
            (b"", Dialect::Unknown),
        ] {
            assert_eq!(Dialect::of_prefix(prefix), dialect, "{prefix:?}");
        }
    }
}

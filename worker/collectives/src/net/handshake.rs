//! The three messages by which two leaders prove that they know the key and are in the same round.
//!
//! ```text
//! connector                                            acceptor
//!   Hello: 8 magic, round id, from, to, shape, 32 nonce ->
//!                          <-  Challenge: 8 status, 32 nonce, 32 mac(acceptor, hello, status, nonce)
//!   Proof: 32 mac(connector, hello, status, nonce)      ->
//! ```
//! A mac is HMAC-SHA256 with the key of the run. It covers a label of the direction and all earlier
//! content, so a recorded message cannot be replayed later, in the other direction or in another
//! round.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{round_id::RoundId, topology::Topology};

const MAGIC: &[u8; 8] = b"ERCOLL\x00\x01";

pub(super) const HELLO: usize = 76;
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
    pub(super) nonce: [u8; 32],
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
        ];
        for (cell, number) in bytes[24..44].chunks_exact_mut(4).zip(numbers) {
            cell.copy_from_slice(&number.to_le_bytes());
        }
        bytes[44..].copy_from_slice(&self.nonce);
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
        nonce.copy_from_slice(&bytes[44..]);
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
            nonce,
        })
    }
}

/// The acceptor's answer, and the proof that it expects.
#[derive(Debug)]
pub(super) struct Challenge {
    pub(super) bytes: [u8; CHALLENGE],
    expected: Hmac<Sha256>,
}

impl Challenge {
    pub(super) fn new(
        key: &[u8; 32],
        hello: &[u8; HELLO],
        status: Status,
    ) -> Result<Self, getrandom::Error> {
        let mut bytes = [0; CHALLENGE];
        bytes[..8].copy_from_slice(&(status as u64).to_le_bytes());
        getrandom::fill(&mut bytes[8..40])?;
        let tag = mac(key, b"acceptor", hello, &bytes[..40]).finalize();
        bytes[40..].copy_from_slice(&tag.into_bytes());
        let expected = mac(key, b"connector", hello, &bytes[..40]);
        Ok(Self { bytes, expected })
    }

    /// Whether the connector knows the key. Takes the same time for any wrong proof.
    pub(super) fn accepts(self, proof: &[u8; PROOF]) -> bool {
        self.expected.verify_slice(proof).is_ok()
    }
}

/// Checks an acceptor's answer to `hello` and returns its status and the proof to send. `None` if
/// the acceptor does not know the key or its status is unknown.
pub(super) fn answer(
    key: &[u8; 32],
    hello: &[u8; HELLO],
    challenge: &[u8; CHALLENGE],
) -> Option<(Status, [u8; PROOF])> {
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
    Some((status, proof.into()))
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
            nonce: [8; 32],
        }
    }

    #[test]
    fn both_sides_prove_themselves() {
        let bytes = hello().encode();
        assert_eq!(Hello::decode(&bytes), Some(hello()));
        for status in [Status::Welcome, Status::Stale, Status::Mismatched] {
            let challenge = Challenge::new(&[1; 32], &bytes, status).unwrap();
            let (found, proof) = answer(&[1; 32], &bytes, &challenge.bytes).unwrap();
            assert_eq!(found, status);
            assert!(challenge.accepts(&proof));
        }
    }

    #[test]
    fn a_wrong_key_or_a_changed_bit_is_refused_by_both() {
        let bytes = hello().encode();
        let challenge = Challenge::new(&[1; 32], &bytes, Status::Welcome).unwrap();
        assert!(answer(&[2; 32], &bytes, &challenge.bytes).is_none());
        for index in [0, 8, 39, 40, 71] {
            let mut changed = challenge.bytes;
            changed[index] ^= 1;
            assert!(answer(&[1; 32], &bytes, &changed).is_none(), "byte {index}");
        }
        let sent = challenge.bytes;
        let mut reflected = [0; PROOF];
        reflected.copy_from_slice(&sent[40..]);
        assert!(!challenge.accepts(&reflected));
        assert_eq!(Hello::decode(&[0; HELLO]), None);
    }
}

//! The three messages by which two leaders prove that they know the key and mean the same session.
//!
//! ```text
//! connector                                            acceptor
//!   Hello: 8 magic, session, from, to, shape, 32 nonce  ->
//!                          <-  Challenge: 8 status, 32 nonce, 32 mac(acceptor, hello, status, nonce)
//!   Proof: 32 mac(connector, hello, status, nonce)      ->
//! ```
//! A mac is HMAC-SHA256 with the key of the run over a label of the direction and all that was said, so
//! a recorded message is worth nothing later, in another direction or in another session.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::topology::{Session, Topology};

const MAGIC: &[u8; 8] = b"ERCOLL\x00\x01";

pub(super) const HELLO: usize = 76;
pub(super) const CHALLENGE: usize = 72;
pub(super) const PROOF: usize = 32;

/// What a connector says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) session: Session,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) host_count: u32,
    pub(super) size: u32,
    /// Lowest rank of the connector's host.
    pub(super) first_rank: u32,
    pub(super) nonce: [u8; 32],
}

/// What an acceptor thinks of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Status {
    /// Go on with the proof.
    Welcome = 1,
    /// The acceptor is in a newer session.
    Stale = 2,
    /// Same session, but another shape of the round, or no neighbours.
    Disagrees = 3,
}

impl Hello {
    pub(super) fn new(
        session: Session,
        topology: &Topology,
        to: u32,
    ) -> Result<Self, getrandom::Error> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce)?;
        Ok(Self {
            session,
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
        bytes[8..16].copy_from_slice(&self.session.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.session.round.to_le_bytes());
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

    /// `None` if it is no hello of ours.
    pub(super) fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        if &bytes[..8] != MAGIC {
            return None;
        }
        let number = |at: usize| {
            let mut number = [0; 4];
            number.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(number)
        };
        let long = |at: usize| u64::from(number(at)) | u64::from(number(at + 4)) << 32;
        let mut nonce = [0; 32];
        nonce.copy_from_slice(&bytes[44..]);
        Some(Self {
            session: Session {
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

/// An acceptor's answer, and the proof that it expects.
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
        let own = mac(key, b"acceptor", hello, &bytes[..40]).finalize();
        bytes[40..].copy_from_slice(&own.into_bytes());
        let expected = mac(key, b"connector", hello, &bytes[..40]);
        Ok(Self { bytes, expected })
    }

    /// Whether the connector knows the key. Takes the same time for any wrong proof.
    pub(super) fn accepts(self, proof: &[u8; PROOF]) -> bool {
        self.expected.verify_slice(proof).is_ok()
    }
}

/// Checks an acceptor's answer to `hello`; gives its status and the proof to send. `None` if the
/// acceptor does not know the key or says something unknown.
pub(super) fn answer(
    key: &[u8; 32],
    hello: &[u8; HELLO],
    challenge: &[u8; CHALLENGE],
) -> Option<(Status, [u8; PROOF])> {
    let said = &challenge[..40];
    mac(key, b"acceptor", hello, said)
        .verify_slice(&challenge[40..])
        .ok()?;
    let status = [Status::Welcome, Status::Stale, Status::Disagrees]
        .into_iter()
        .find(|status| (*status as u64).to_le_bytes() == said[..8])?;
    let proof = mac(key, b"connector", hello, said).finalize().into_bytes();
    Some((status, proof.into()))
}

fn mac(key: &[u8; 32], label: &[u8], hello: &[u8; HELLO], said: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("hmac takes keys of any length");
    mac.update(b"elasticrun data plane ");
    mac.update(label);
    mac.update(hello);
    mac.update(said);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            session: Session {
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
        for status in [Status::Welcome, Status::Stale, Status::Disagrees] {
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
        for at in [0, 8, 39, 40, 71] {
            let mut changed = challenge.bytes;
            changed[at] ^= 1;
            assert!(answer(&[1; 32], &bytes, &changed).is_none(), "byte {at}");
        }
        let own = challenge.bytes;
        let mut reflected = [0; PROOF];
        reflected.copy_from_slice(&own[40..]);
        assert!(!challenge.accepts(&reflected));
        assert_eq!(Hello::decode(&[0; HELLO]), None);
    }
}

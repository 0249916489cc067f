//! The first messages of a connection: who dials, and, in a job with a key, that both ends have it.
//!
//! ```text
//! dials                                                         accepts
//!   Opening: 8 magic, 4 id, 2 flags, 2 incarnation            ->
//!   32 nonce, if it has a key                                 ->
//!                      <- Challenge: 8 verdict, 32 nonce, 32 mac(accepts, opening, nonce, verdict, nonce)
//!   Proof: 32 mac(dials, opening, nonce, challenge)           ->
//!   8 bytes for each direction, with a descriptor, if it
//!   offers shared memory                                      ->
//! ```
//! A mac is HMAC-SHA256. It covers a label of the direction and all earlier content, so a recorded message is of no use later or in the
//! other direction. Without keys, nothing is proved.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::{frame::FrameError, node::NodeId};
use crate::error::Error;

/// Bytes of the opening of a connection.
pub(crate) const OPENING: usize = 16;
/// Bytes of a nonce.
pub(crate) const NONCE: usize = 32;
/// Bytes of a challenge.
pub(crate) const CHALLENGE: usize = 72;
/// Bytes of a proof.
pub(crate) const PROOF: usize = 32;

/// The last byte is the version of opening and frames.
const MAGIC: [u8; 8] = *b"ERPS\0\0\0\x02";
/// The flag of a sender that has a key.
const KEYED: u16 = 1;
/// The flag of a sender that offers shared memory.
const SHARES: u16 = 2;
/// What the challenge of a node with a key begins with.
const WELCOME: u64 = 1;
/// What that of a node without one begins with.
const NO_KEY: u64 = 2;
/// The shortest text of a key.
const SHORTEST: usize = 16;

/// The key of a job: only nodes that have it take part.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of a text, which all nodes of the job have in common: 32 random bytes in hexadecimal, say.
    ///
    /// # Errors
    /// The text is shorter than 16 bytes.
    pub fn new(text: &str) -> Result<Self, Error> {
        if text.len() < SHORTEST {
            // The text is a secret.
            let text = "ELASTICRUN_PS_KEY: expected 16 bytes or more, such as 32 random bytes in hexadecimal";
            return Err(Error::Options(text.to_owned()));
        }
        let mut hash = Sha256::new();
        hash.update(b"elasticrun parameter server");
        hash.update(text);
        Ok(Self(hash.finalize().into()))
    }

    fn mac(&self, label: &[u8], hello: &Hello, challenge: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("hmac takes keys of any length");
        mac.update(label);
        mac.update(&hello.opening);
        mac.update(&hello.nonce);
        mac.update(challenge);
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// What a node says that dials with a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hello {
    pub(crate) opening: [u8; OPENING],
    pub(crate) nonce: [u8; NONCE],
}

/// Who dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// 0 until it has an id.
    pub(crate) sender: NodeId,
    /// How many processes have had that id before.
    pub(crate) incarnation: u16,
    /// Whether it has a key, and a nonce follows.
    pub(crate) keyed: bool,
    /// Whether it offers memory for payloads, whose descriptor follows behind the proof.
    pub(crate) shares: bool,
}

impl Opening {
    pub(crate) fn encode(self) -> [u8; OPENING] {
        let mut bytes = [0; OPENING];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.sender.0.to_le_bytes());
        let flags = u16::from(self.keyed) * KEYED + u16::from(self.shares) * SHARES;
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes
    }

    /// Reads the first bytes of a connection.
    pub(crate) fn decode(bytes: &[u8; OPENING]) -> Result<Self, FrameError> {
        if bytes[..7] != MAGIC[..7] {
            return Err(FrameError::NoOpening);
        }
        if bytes[7] != MAGIC[7] {
            return Err(FrameError::OtherRelease { version: bytes[7] });
        }
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Ok(Self {
            sender: NodeId(word(8)),
            incarnation: (word(12) >> 16) as u16,
            keyed: word(12) as u16 & KEYED != 0,
            shares: word(12) as u16 & SHARES != 0,
        })
    }
}

/// Why the other end is none of this job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stranger {
    #[error("it has another key")]
    OtherKey,
    #[error("it has no key")]
    NoKey,
}

/// The answer of a node with a key, and the proof that it expects. `nonce` is a new random number.
pub(crate) fn challenge(
    key: &Key,
    hello: &Hello,
    nonce: [u8; NONCE],
) -> ([u8; CHALLENGE], Expected) {
    let mut bytes = [0; CHALLENGE];
    bytes[..8].copy_from_slice(&WELCOME.to_le_bytes());
    bytes[8..40].copy_from_slice(&nonce);
    let tag = key.mac(b"accepts", hello, &bytes[..40]).finalize();
    bytes[40..].copy_from_slice(&tag.into_bytes());
    (bytes, Expected(key.mac(b"dials", hello, &bytes)))
}

/// The answer of a node without a key.
pub(crate) fn no_key() -> [u8; CHALLENGE] {
    let mut bytes = [0; CHALLENGE];
    bytes[..8].copy_from_slice(&NO_KEY.to_le_bytes());
    bytes
}

/// What the node that dials answers to a challenge.
pub(crate) fn prove(
    key: &Key,
    hello: &Hello,
    challenge: &[u8; CHALLENGE],
) -> Result<[u8; PROOF], Stranger> {
    if challenge[..8] == NO_KEY.to_le_bytes() {
        return Err(Stranger::NoKey);
    }
    let known = key
        .mac(b"accepts", hello, &challenge[..40])
        .verify_slice(&challenge[40..]);
    if known.is_err() || challenge[..8] != WELCOME.to_le_bytes() {
        return Err(Stranger::OtherKey);
    }
    Ok(key
        .mac(b"dials", hello, challenge)
        .finalize()
        .into_bytes()
        .into())
}

/// The proof that a node expects.
#[derive(Debug)]
pub(crate) struct Expected(Hmac<Sha256>);

impl Expected {
    /// Takes the same time for any wrong proof.
    pub(crate) fn check(self, proof: &[u8; PROOF]) -> Result<(), Stranger> {
        self.0.verify_slice(proof).map_err(|_| Stranger::OtherKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let opening = Opening {
            sender: NodeId(9),
            incarnation: 0,
            keyed: true,
            shares: false,
        };
        Hello {
            opening: opening.encode(),
            nonce: [8; NONCE],
        }
    }

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn openings_come_back_and_what_is_wrong_is_named() {
        for (keyed, shares) in [(false, false), (true, false), (false, true), (true, true)] {
            let opening = Opening {
                sender: NodeId(9),
                incarnation: 0x1234,
                keyed,
                shares,
            };
            assert_eq!(Opening::decode(&opening.encode()), Ok(opening));
        }
        let mut other = hello().opening;
        other[7] = 1;
        assert_eq!(
            Opening::decode(&other),
            Err(FrameError::OtherRelease { version: 1 })
        );
        assert_eq!(
            Opening::decode(b"GET / HTTP/1.1\r\n"),
            Err(FrameError::NoOpening)
        );
    }

    #[test]
    fn both_ends_prove_that_they_have_the_key() {
        let key = key("a key of the job");
        let (bytes, expected) = challenge(&key, &hello(), [7; NONCE]);
        let proof = prove(&key, &hello(), &bytes).unwrap();
        assert_eq!(expected.check(&proof), Ok(()));
    }

    #[test]
    fn another_key_no_key_and_a_changed_bit_are_refused() {
        let (own, other) = (key("a key of the job"), key("a key of another job"));
        let (bytes, expected) = challenge(&other, &hello(), [7; NONCE]);
        assert_eq!(prove(&own, &hello(), &bytes), Err(Stranger::OtherKey));
        assert_eq!(prove(&own, &hello(), &no_key()), Err(Stranger::NoKey));
        let (mine, _) = challenge(&own, &hello(), [7; NONCE]);
        let proof = prove(&own, &hello(), &mine).unwrap();
        assert_eq!(expected.check(&proof), Err(Stranger::OtherKey));
        for index in 0..CHALLENGE {
            let mut changed = mine;
            changed[index] ^= 4;
            assert!(prove(&own, &hello(), &changed).is_err(), "byte {index}");
        }
        // What was said in the other direction, or to another node, proves nothing.
        let reflected = mine[40..].try_into().unwrap();
        let (_, expected) = challenge(&own, &hello(), [7; NONCE]);
        assert!(expected.check(&reflected).is_err());
        let another = Hello {
            nonce: [9; NONCE],
            ..hello()
        };
        let (_, expected) = challenge(&own, &another, [7; NONCE]);
        assert!(expected.check(&proof).is_err());
    }

    #[test]
    fn a_short_key_is_refused_and_no_key_is_shown() {
        let error = Key::new("short").unwrap_err().to_string();
        assert!(
            error.starts_with("ELASTICRUN_PS_KEY: expected 16 bytes") && !error.contains("short"),
            "{error}"
        );
        assert_eq!(format!("{:?}", key("a key of the job")), "Key(..)");
    }
}

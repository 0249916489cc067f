//! The handshake: both sides prove that they know the job's secret before any other message is read.
//!
//! ```text
//! dialler                                   listener
//!   Hello { versions, purpose, nonce }  ->
//!                                       <-  Challenge { chosen, nonce, proof(listener) }
//!   Proof { proof(dialler) }            ->
//!                                       <-  Verdict::Welcome | Verdict::Refused { why }
//! ```
//! A proof is HMAC-SHA256 over a label of the direction, the purpose, the dialler's versions and both nonces. So it is
//! worthless in the other direction, for another purpose and at another time.
//!
//! The listener proves itself first, but only for a fresh nonce. A stranger learns nothing that helps to guess a
//! 256-bit key.
//!
//! Not promised: secrecy of the messages that follow. The stream is not encrypted.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use crate::opening::{Opened, Purpose};

/// The oldest protocol version that this build speaks.
pub const MIN_VERSION: u16 = 1;
/// The newest protocol version that this build speaks.
pub const MAX_VERSION: u16 = 2;

/// 256 bits that only the processes of one job know. The `Debug` output does not contain them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A fresh secret from the system's random source.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn random() -> Result<Self, getrandom::Error> {
        Ok(Self(nonce()?.0))
    }

    /// The secret of a join token; any text is a token.
    pub fn from_token(token: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"elasticrun join token\0");
        hash.update(token.trim().as_bytes());
        Self(hash.finalize().into())
    }

    /// Derives a secret for one purpose. It reveals nothing about this one.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        Self(
            mac(self, &[b"derive", purpose.as_bytes()])
                .finalize()
                .into_bytes()
                .into(),
        )
    }

    /// The key with which the workers of a run fetch the function that they call and return its results. The driver and
    /// every agent derive it themselves, so it never crosses a network.
    #[must_use]
    pub fn call_key(&self, run_id: &str) -> Self {
        self.derive(&format!("call of run {run_id}"))
    }

    /// The bytes, for a library that needs a key.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// The secret with these bytes.
    pub fn from_bytes(bytes: Bytes32) -> Self {
        Self(bytes.0)
    }

    /// Hexadecimal text, to pass the secret to a child over a pipe. It must not be logged.
    pub fn to_hex(&self) -> String {
        Bytes32(self.0).to_string()
    }

    /// Parses the result of [`Secret::to_hex`].
    pub fn from_hex(text: &str) -> Option<Self> {
        Bytes32::parse(text.trim()).map(|bytes| Self(bytes.0))
    }
}

/// 32 bytes that are sent as hexadecimal text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes32(pub [u8; 32]);

impl Bytes32 {
    fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Bytes32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Bytes32 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes32 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not 64 hexadecimal digits"))
    }
}

/// Serializes a secret as hexadecimal digits, for serde's `with`.
pub mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Secret;

    /// Writes the digits.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&secret.to_hex())
    }

    /// Reads the digits.
    ///
    /// # Errors
    /// The text is no secret.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        let text = String::deserialize(deserializer)?;
        Secret::from_hex(&text).ok_or_else(|| D::Error::custom("not a secret"))
    }
}

/// Fresh random bytes for one handshake.
///
/// # Errors
/// If the system provides no randomness.
pub fn nonce() -> Result<Bytes32, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Bytes32(bytes))
}

/// The first frame of the dialler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Always `elasticrun`.
    pub magic: String,
    /// The oldest version that the dialler speaks.
    pub min: u16,
    /// The newest version that the dialler speaks.
    pub max: u16,
    /// The dialler's release, only for messages to users.
    pub software: String,
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// Fresh for this connection.
    pub nonce: Bytes32,
}

/// The first frame of the listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Challenge {
    /// The version that both sides will speak.
    pub chosen: u16,
    /// The listener's release, only for messages to users.
    pub software: String,
    /// Fresh for this connection.
    pub nonce: Bytes32,
    /// The proof that the listener knows the secret.
    pub proof: Bytes32,
}

/// The second frame of the dialler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proof {
    /// The proof that the dialler knows the secret.
    pub proof: Bytes32,
}

/// The second frame of the listener. It is the first one if the listener refuses the hello.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The handshake has succeeded.
    Welcome,
    /// The handshake has failed, and the connection ends.
    Refused {
        /// A message for the user.
        why: String,
    },
}

/// Why a handshake failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The peer does not speak this protocol.
    #[error("the peer does not speak elasticrun's protocol")]
    Stranger,
    /// The peers have no version in common.
    #[error(
        "the peer runs elasticrun {software} (protocol {min} to {max}), this is {own} (protocol {MIN_VERSION} to {MAX_VERSION}); install the same release on both",
        own = env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The peer's release.
        software: String,
        /// The peer's oldest version.
        min: u16,
        /// The peer's newest version.
        max: u16,
    },
    /// This port does not serve that purpose.
    #[error("the peer wants {0:?}, which is not served at this port")]
    Purpose(Purpose),
    /// The peer does not know the secret.
    #[error("the peer has the wrong secret; is it of another job, or is its join token old?")]
    WrongSecret,
    /// The listener refused the dialler.
    #[error("refused by the peer: {0}")]
    Refused(String),
}

/// The dialler's half of the handshake. It does no I/O: the caller moves the frames.
#[derive(Debug)]
pub struct Dialler {
    secret: Secret,
    hello: Hello,
}

impl Dialler {
    /// Starts a handshake with a fresh `nonce`.
    pub fn new(secret: Secret, purpose: Purpose, nonce: Bytes32) -> Self {
        let hello = Hello {
            magic: MAGIC.into(),
            min: MIN_VERSION,
            max: MAX_VERSION,
            software: env!("CARGO_PKG_VERSION").into(),
            purpose,
            nonce,
        };
        Self { secret, hello }
    }

    /// The first frame to send.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Checks the listener's proof. Gives the second frame, and what the handshake agrees on if the listener welcomes
    /// that frame.
    ///
    /// # Errors
    /// [`Error::Version`] or [`Error::WrongSecret`].
    pub fn answer(&self, challenge: &Challenge) -> Result<(Proof, Opened), Error> {
        if !(MIN_VERSION..=MAX_VERSION).contains(&challenge.chosen) {
            let software = challenge.software.clone();
            return Err(Error::Version {
                software,
                min: challenge.chosen,
                max: challenge.chosen,
            });
        }
        let (hello, nonce) = (&self.hello, &challenge.nonce);
        check(&self.secret, LISTENER, hello, nonce, &challenge.proof)?;
        let proof = Proof {
            proof: prove(&self.secret, DIALLER, hello, nonce),
        };
        let opened = Opened {
            purpose: hello.purpose,
            version: challenge.chosen,
        };
        Ok((proof, opened))
    }
}

/// The listener's half of the handshake. It does no I/O: the caller moves the frames.
#[derive(Debug)]
pub struct Listener {
    secret: Secret,
    hello: Hello,
    nonce: Bytes32,
}

impl Listener {
    /// Checks the first frame of a dialler. `serves` lists the purposes of this port.
    ///
    /// # Errors
    /// [`Error::Stranger`], [`Error::Version`] or [`Error::Purpose`]; the caller sends [`Verdict::Refused`].
    pub fn new(
        secret: Secret,
        serves: &[Purpose],
        hello: Hello,
        nonce: Bytes32,
    ) -> Result<Self, Error> {
        if hello.magic != MAGIC {
            return Err(Error::Stranger);
        }
        if hello.min > MAX_VERSION || hello.max < MIN_VERSION {
            return Err(Error::Version {
                software: hello.software,
                min: hello.min,
                max: hello.max,
            });
        }
        if !serves.contains(&hello.purpose) {
            return Err(Error::Purpose(hello.purpose));
        }
        Ok(Self {
            secret,
            hello,
            nonce,
        })
    }

    /// The answer to the dialler's first frame.
    pub fn challenge(&self) -> Challenge {
        Challenge {
            chosen: self.chosen(),
            software: env!("CARGO_PKG_VERSION").into(),
            nonce: self.nonce,
            proof: prove(&self.secret, LISTENER, &self.hello, &self.nonce),
        }
    }

    /// The newest version that both sides speak.
    fn chosen(&self) -> u16 {
        self.hello.max.min(MAX_VERSION)
    }

    /// Checks the dialler's proof and gives what the handshake has agreed on.
    ///
    /// # Errors
    /// [`Error::WrongSecret`].
    pub fn verify(&self, proof: &Proof) -> Result<Opened, Error> {
        check(
            &self.secret,
            DIALLER,
            &self.hello,
            &self.nonce,
            &proof.proof,
        )?;
        Ok(Opened {
            purpose: self.hello.purpose,
            version: self.chosen(),
        })
    }
}

const MAGIC: &str = "elasticrun";
const DIALLER: &[u8] = b"dialler";
const LISTENER: &[u8] = b"listener";

fn mac(secret: &Secret, parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

fn transcript(secret: &Secret, role: &[u8], hello: &Hello, nonce: &Bytes32) -> Hmac<Sha256> {
    let purpose = [hello.purpose as u8];
    let versions = [hello.min.to_be_bytes(), hello.max.to_be_bytes()].concat();
    mac(
        secret,
        &[role, &purpose, &versions, &hello.nonce.0, &nonce.0],
    )
}

fn prove(secret: &Secret, role: &[u8], hello: &Hello, nonce: &Bytes32) -> Bytes32 {
    Bytes32(
        transcript(secret, role, hello, nonce)
            .finalize()
            .into_bytes()
            .into(),
    )
}

fn check(
    secret: &Secret,
    role: &[u8],
    hello: &Hello,
    nonce: &Bytes32,
    proof: &Bytes32,
) -> Result<(), Error> {
    transcript(secret, role, hello, nonce)
        .verify_slice(&proof.0)
        .map_err(|_| Error::WrongSecret)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What both sides have agreed on, dialler first.
    fn handshake(dialler: &str, listener: &str) -> Result<[Opened; 2], Error> {
        let dialler = Dialler::new(
            Secret::from_token(dialler),
            Purpose::Control,
            nonce().unwrap(),
        );
        let serves = [Purpose::Control, Purpose::Output];
        let listener = Listener::new(
            Secret::from_token(listener),
            &serves,
            dialler.hello().clone(),
            nonce().unwrap(),
        )?;
        let (proof, opened) = dialler.answer(&listener.challenge())?;
        Ok([opened, listener.verify(&proof)?])
    }

    #[test]
    fn who_knows_the_secret_gets_in() {
        let opened = Opened {
            purpose: Purpose::Control,
            version: MAX_VERSION,
        };
        assert_eq!(handshake("a", "a"), Ok([opened; 2]));
    }

    #[test]
    fn both_sides_speak_the_newest_version_that_both_know() {
        let secret = Secret::from_token("a");
        let dialler = Dialler::new(secret.clone(), Purpose::Output, nonce().unwrap());
        let newer = Hello {
            max: MAX_VERSION + 1,
            ..dialler.hello().clone()
        };
        let newer = Dialler {
            secret: secret.clone(),
            hello: newer,
        };
        let hello = newer.hello().clone();
        let listener = Listener::new(secret, &[Purpose::Output], hello, nonce().unwrap()).unwrap();
        let (proof, opened) = newer.answer(&listener.challenge()).unwrap();
        assert_eq!(opened.version, MAX_VERSION);
        assert_eq!(listener.verify(&proof), Ok(opened));
    }

    #[test]
    fn who_does_not_is_refused_by_either_side() {
        assert_eq!(handshake("a", "b"), Err(Error::WrongSecret));
        let secret = Secret::from_token("a");
        let honest = Dialler::new(Secret::from_token("b"), Purpose::Control, nonce().unwrap());
        let listener = Listener::new(
            secret,
            &[Purpose::Control],
            honest.hello().clone(),
            nonce().unwrap(),
        )
        .unwrap();
        let forged = Proof {
            proof: listener.challenge().proof,
        };
        assert_eq!(
            listener.verify(&forged),
            Err(Error::WrongSecret),
            "a reflected proof is worth nothing"
        );
    }

    #[test]
    fn another_version_is_named() {
        let mut hello = Dialler::new(Secret::from_token("a"), Purpose::Control, nonce().unwrap())
            .hello()
            .clone();
        (hello.min, hello.max, hello.software) = (7, 9, "9.9".into());
        let error = Listener::new(
            Secret::from_token("a"),
            &[Purpose::Control],
            hello,
            nonce().unwrap(),
        )
        .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("runs elasticrun 9.9 (protocol 7 to 9)"),
            "{error}"
        );
    }

    #[test]
    fn a_secret_shows_nothing_and_survives_a_pipe() {
        let secret = Secret::random().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(Secret::from_hex(&secret.to_hex()).as_ref(), Some(&secret));
        assert_ne!(secret.derive("data").to_hex(), secret.to_hex());
        assert_eq!(Secret::from_hex("é".repeat(32).as_str()), None);
    }
}

//! The handshake: both sides prove that they know the job's secret before anything else is read.
//!
//! ```text
//! dialler                                   listener
//!   Hello { versions, purpose, nonce }  ->
//!                                       <-  Challenge { chosen, nonce, proof(listener) }
//!   Proof { proof(dialler) }            ->
//!                                       <-  Verdict::Welcome | Verdict::Refused { why }
//! ```
//! A proof is HMAC-SHA256 over a label of the direction, the purpose and both nonces, so that it is
//! worth nothing in another direction, on another port or at another time. The listener proves itself
//! first only to who sent a fresh nonce; a stranger learns nothing that helps to guess a 256-bit key.
//!
//! Not promised: secrecy of what follows. TLS wraps the stream beneath this handshake in a later part.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Oldest protocol version that this build speaks.
pub const MIN_VERSION: u16 = 1;
/// Newest protocol version that this build speaks.
pub const MAX_VERSION: u16 = 1;

/// 256 bits that only the processes of one job know. Its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A fresh one from the system's random source.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        Ok(Self(nonce()?.0))
    }

    /// The secret that a join token stands for; any text is a token.
    pub fn from_token(token: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"elasticrun join token\0");
        hash.update(token.trim().as_bytes());
        Self(hash.finalize().into())
    }

    /// Another secret, for one purpose, that tells nothing of this one.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        Self(
            mac(self, &[b"derive", purpose.as_bytes()])
                .finalize()
                .into_bytes()
                .into(),
        )
    }

    /// The key by which the workers of a run fetch the function that they call, and bring back its results. The driver and
    /// every agent make it for themselves, so it never crosses a network.
    #[must_use]
    pub fn call_key(&self, run_id: &str) -> Self {
        self.derive(&format!("call of run {run_id}"))
    }

    /// The bytes, for a library that needs a key.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Of the bytes of another.
    pub fn from_bytes(bytes: Bytes32) -> Self {
        Self(bytes.0)
    }

    /// Hexadecimal text, to hand it to a child over a pipe. Never log it.
    pub fn to_hex(&self) -> String {
        Bytes32(self.0).to_string()
    }

    /// Reads [`Secret::to_hex`].
    pub fn from_hex(text: &str) -> Option<Self> {
        Bytes32::parse(text.trim()).map(|bytes| Self(bytes.0))
    }
}

/// 32 bytes that travel as hexadecimal text.
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

/// Fresh random bytes for one handshake.
///
/// # Errors
/// When the system has no randomness to give.
pub fn nonce() -> Result<Bytes32, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Bytes32(bytes))
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Orders and reports between driver and agent.
    Control,
    /// Lines that workers print, from agent to driver.
    Output,
    /// A committed state, from the agent that keeps it to a worker.
    Memory,
    /// Requests of workers to the job's key-value store, from agent to driver.
    Store,
}

/// First frame of the dialler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Always `elasticrun`.
    pub magic: String,
    /// Oldest version the dialler speaks.
    pub min: u16,
    /// Newest version the dialler speaks.
    pub max: u16,
    /// The dialler's release, for messages to people only.
    pub software: String,
    /// What the connection is for.
    pub purpose: Purpose,
    /// Fresh for this connection.
    pub nonce: Bytes32,
}

/// First frame of the listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Challenge {
    /// The version both will speak.
    pub chosen: u16,
    /// The listener's release, for messages to people only.
    pub software: String,
    /// Fresh for this connection.
    pub nonce: Bytes32,
    /// That the listener knows the secret.
    pub proof: Bytes32,
}

/// Second frame of the dialler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proof {
    /// That the dialler knows the secret.
    pub proof: Bytes32,
}

/// Second frame of the listener; also its first where it has nothing to say but no.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Go on.
    Welcome,
    /// The connection ends here.
    Refused {
        /// For a person.
        why: String,
    },
}

/// Why a handshake failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// Not one of us.
    #[error("the peer does not speak elasticrun's protocol")]
    Stranger,
    /// No version in common.
    #[error(
        "the peer runs elasticrun {software} (protocol {min} to {max}), this is {own} (protocol {MIN_VERSION} to {MAX_VERSION}); install the same release on both",
        own = env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The peer's release.
        software: String,
        /// Its oldest version.
        min: u16,
        /// Its newest version.
        max: u16,
    },
    /// The connection is for something else.
    #[error("the peer wants {0:?}, which is not served at this port")]
    Purpose(Purpose),
    /// The peer does not know the secret.
    #[error("the peer has the wrong secret; is it of another job, or is its join token old?")]
    WrongSecret,
    /// The listener said no.
    #[error("refused by the peer: {0}")]
    Refused(String),
}

/// The dialler's half. Pure: the caller moves the frames.
#[derive(Debug)]
pub struct Dialler {
    secret: Secret,
    hello: Hello,
}

impl Dialler {
    /// Begins with a fresh `nonce`.
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

    /// Checks the listener and gives the second frame.
    ///
    /// # Errors
    /// [`Error::Version`] or [`Error::WrongSecret`].
    pub fn answer(&self, challenge: &Challenge) -> Result<Proof, Error> {
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
        Ok(Proof {
            proof: prove(&self.secret, DIALLER, hello, nonce),
        })
    }
}

/// The listener's half. Pure: the caller moves the frames.
#[derive(Debug)]
pub struct Listener {
    secret: Secret,
    hello: Hello,
    nonce: Bytes32,
}

impl Listener {
    /// Checks the first frame of a dialler; `serves` says what this port is for.
    ///
    /// # Errors
    /// [`Error::Stranger`], [`Error::Version`] or [`Error::Purpose`]; tell the dialler by [`Verdict::Refused`].
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

    /// The frame to answer with.
    pub fn challenge(&self) -> Challenge {
        Challenge {
            chosen: self.hello.max.min(MAX_VERSION),
            software: env!("CARGO_PKG_VERSION").into(),
            nonce: self.nonce,
            proof: prove(&self.secret, LISTENER, &self.hello, &self.nonce),
        }
    }

    /// Checks the dialler's proof and says what the connection is for.
    ///
    /// # Errors
    /// [`Error::WrongSecret`].
    pub fn verify(&self, proof: &Proof) -> Result<Purpose, Error> {
        check(
            &self.secret,
            DIALLER,
            &self.hello,
            &self.nonce,
            &proof.proof,
        )?;
        Ok(self.hello.purpose)
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

    fn handshake(dialler: &str, listener: &str) -> Result<Purpose, Error> {
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
        listener.verify(&dialler.answer(&listener.challenge())?)
    }

    #[test]
    fn who_knows_the_secret_gets_in() {
        assert_eq!(handshake("a", "a"), Ok(Purpose::Control));
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

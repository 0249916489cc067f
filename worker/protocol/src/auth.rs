//! The secret of a job, from which the keys of the data plane, of calls and of the parameter server are derived.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

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
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
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

fn mac(secret: &Secret, parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing_and_survives_a_pipe() {
        let secret = Secret::random().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(Secret::from_hex(&secret.to_hex()).as_ref(), Some(&secret));
        assert_ne!(secret.derive("data").to_hex(), secret.to_hex());
        assert_eq!(Secret::from_hex("é".repeat(32).as_str()), None);
    }
}

//! What a process needs to prove what it is: its certificate, the private key of it, and the job's root certificate.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use zeroize::Zeroizing;

use crate::Role;

/// A private key as PKCS #8. The `Debug` output does not contain it, and its memory is overwritten when it is dropped.
///
/// Serialized, it is base64 text: to a child over a pipe, or to a file that is encrypted. It must not be logged.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(Zeroizing<Vec<u8>>);

impl PrivateKey {
    /// The key with these bytes of PKCS #8. They are checked when the key is used.
    pub fn from_pkcs8(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes of PKCS #8, for a library that needs a key.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn to_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.to_vec()).into()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

impl Serialize for PrivateKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(STANDARD.encode(self.expose())))
    }
}

impl<'de> Deserialize<'de> for PrivateKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        // The error of the decoder names a byte of the key.
        let bytes = STANDARD
            .decode(text.as_bytes())
            .map_err(|_| D::Error::custom("a private key is not base64"))?;
        Ok(Self::from_pkcs8(bytes))
    }
}

/// A certificate as DER.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate(Vec<u8>);

impl Certificate {
    /// The certificate with these bytes of DER. They are checked when the certificate is used.
    pub fn from_der(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes of DER.
    pub fn der(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn to_der(&self) -> CertificateDer<'static> {
        self.0.clone().into()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({} bytes)", self.0.len())
    }
}

impl Serialize for Certificate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Certificate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| D::Error::custom("a certificate is not base64"))?;
        Ok(Self(bytes))
    }
}

/// The identity of a process.
///
/// Serialized, it contains the private key: see [`PrivateKey`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The role that the certificate names.
    pub role: Role,
    /// The root certificate of the job.
    pub authority: Certificate,
    /// The certificate of this process.
    pub certificate: Certificate,
    /// The key of the certificate.
    pub key: PrivateKey,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            role: Role::Agent,
            authority: Certificate::from_der(vec![1; 300]),
            certificate: Certificate::from_der(vec![2; 300]),
            key: PrivateKey::from_pkcs8(vec![0xAB; 100]),
        }
    }

    #[test]
    fn it_is_text_and_reads_back() {
        let text = serde_json::to_string(&identity()).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity());
    }

    #[test]
    fn debug_output_has_no_key() {
        let text = format!("{:?} {:#?}", identity(), identity());
        let key = identity().key;
        for secret in [
            STANDARD.encode(key.expose()),
            "171".into(),
            "abab".into(),
            "ABAB".into(),
        ] {
            assert!(!text.contains(&secret), "{text}");
        }
    }

    #[test]
    fn an_error_shows_nothing_of_a_damaged_key() {
        let text = serde_json::to_string(&identity()).unwrap();
        let damaged = text.replace("q6ur", "q6u!");
        assert_ne!(text, damaged);
        let error = serde_json::from_str::<Identity>(&damaged)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("a private key is not base64"), "{error}");
    }
}

//! `--plugin-allow NAME=sha256:...`: plugins that may run, by the hash of their files.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

/// A plugin that may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The plugin's name.
    pub name: String,
    /// The hash of its file.
    pub hash: Hash,
}

/// The SHA-256 hash of a file. It prints as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of these bytes.
    pub fn digest(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.hash)
    }
}

/// The text is no allowed plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("64 hexadecimal digits behind NAME=sha256:, as sha256sum prints them")]
pub struct NotAllowed;

impl FromStr for Allowed {
    type Err = NotAllowed;

    fn from_str(text: &str) -> Result<Self, NotAllowed> {
        let (name, digits) = text.split_once("=sha256:").ok_or(NotAllowed)?;
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let hexadecimal = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if name.is_empty() || !name.bytes().all(good) || !hexadecimal {
            return Err(NotAllowed);
        }
        let mut hash = [0; 32];
        for (index, byte) in hash.iter_mut().enumerate() {
            let digits = &digits[2 * index..2 * index + 2];
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NotAllowed)?;
        }
        Ok(Self {
            name: name.to_owned(),
            hash: Hash(hash),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_printed() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let text = format!("aws-asg=sha256:{empty}");
        let allowed: Allowed = text.parse().unwrap();
        assert_eq!(
            (allowed.name.as_str(), allowed.hash),
            ("aws-asg", Hash::digest(b""))
        );
        assert_eq!(allowed.to_string(), text);
        let long = format!("{text}0");
        for wrong in ["", "a", "a=", "a=sha256:00", "=sha256:", &long, "A=sha256:"] {
            assert_eq!(wrong.parse::<Allowed>(), Err(NotAllowed), "{wrong}");
        }
    }
}

//! Settings on stdin: one line of JSON, so that no secret is ever an argument or a variable.

use std::io::{self, BufRead, Read};

use serde::de::DeserializeOwned;

/// More than anybody sends.
const LONGEST: u64 = 64 * 1024;

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Stdin failed.
    #[error("cannot read the settings from stdin: {0}")]
    Read(#[from] io::Error),
    /// There is nothing, or no end of line.
    #[error("no settings on stdin; {advice}")]
    Missing {
        /// Who sends them.
        advice: &'static str,
    },
    /// Not what a program of this release sends. The text is not shown: it may hold the secret.
    #[error(
        "the settings on stdin cannot be read (line {line}, column {column}); run the same release on all hosts"
    )]
    Malformed {
        /// Where it went wrong.
        line: usize,
        /// Where in the line.
        column: usize,
    },
}

/// Reads the line; blocks until it is there, and leaves what follows. `advice` says who sends it.
///
/// # Errors
/// [`SettingsError::Missing`] at the end of stdin, [`SettingsError::Malformed`] for anything else than such a line.
pub fn read_settings<T: DeserializeOwned>(
    stdin: &mut impl BufRead,
    advice: &'static str,
) -> Result<T, SettingsError> {
    let mut line = Vec::new();
    stdin.take(LONGEST).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(SettingsError::Missing { advice });
    }
    serde_json::from_slice(&line).map_err(|error| SettingsError::Malformed {
        line: error.line(),
        column: error.column(),
    })
}

/// A secret in hexadecimal digits, for serde's `with`.
pub mod hex {
    use elasticrun_protocol::auth::Secret;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// As text.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&secret.to_hex())
    }

    /// From text.
    ///
    /// # Errors
    /// The text is no secret.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        let text = String::deserialize(deserializer)?;
        Secret::from_hex(&text).ok_or_else(|| D::Error::custom("not a secret"))
    }
}

//! Settings on stdin: one line of JSON, so that no secret is an argument or a variable.

use std::io::{self, BufRead, Read};

use serde::de::DeserializeOwned;

/// The longest line that is read; valid settings are shorter.
const MAX_LEN: u64 = 64 * 1024;

/// An error in the settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Stdin cannot be read.
    #[error("cannot read the settings from stdin: {0}")]
    Read(#[from] io::Error),
    /// Stdin has no complete line.
    #[error("no settings on stdin; {advice}")]
    Missing {
        /// How the program is started.
        advice: &'static str,
    },
    /// The line is no valid settings of this release. The text is not shown, since it may contain the secret.
    #[error(
        "the settings on stdin cannot be read (line {line}, column {column}); run the same release on all hosts"
    )]
    Malformed {
        /// The line of the error.
        line: usize,
        /// The column of the error.
        column: usize,
    },
}

/// Reads the line. Blocks until the line is complete, and reads nothing beyond it. `advice` is text for the error: how
/// the program is started.
///
/// # Errors
/// [`SettingsError::Missing`] if there is no complete line, [`SettingsError::Malformed`] for an invalid line.
pub fn read_settings<T: DeserializeOwned>(
    stdin: &mut impl BufRead,
    advice: &'static str,
) -> Result<T, SettingsError> {
    let mut line = Vec::new();
    stdin.take(MAX_LEN).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(SettingsError::Missing { advice });
    }
    serde_json::from_slice(&line).map_err(|error| SettingsError::Malformed {
        line: error.line(),
        column: error.column(),
    })
}

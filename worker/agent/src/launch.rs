//! How a launcher tells an agent its settings: one JSON line on stdin.
//!
//! So no secret is ever an argument or a variable. Stdin may stay open or end afterwards: its end is not
//! the driver's death, which the agent sees by the control connection.

use std::io::{self, BufRead, Read};

use elasticrun_protocol::{HostId, auth::Secret};
use serde::{Deserialize, Serialize};

/// The settings of an agent that a launcher starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Addresses of the driver (`host:port`), tried in turn.
    pub driver: Vec<String>,
    /// The job's secret.
    #[serde(with = "hex")]
    pub secret: Secret,
    /// The host it is started for.
    pub host: HostId,
    /// Slots of the host.
    pub slots: u32,
    /// The run, so that the host's lock is taken before the driver is dialled.
    #[serde(default)]
    pub run_id: Option<String>,
    /// At whose address other hosts reach this one; else that of the route to the driver.
    #[serde(default)]
    pub network_interface: Option<String>,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Stdin failed.
    #[error("cannot read the agent's settings from stdin: {0}")]
    Read(#[from] io::Error),
    /// There is nothing, or no end of line.
    #[error(
        "no settings on stdin; `elasticrun agent` is started by a launcher, or by hand with --join HOST:PORT"
    )]
    Missing,
    /// Not what a launcher of this release sends. The text is not shown: it may hold the secret.
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

/// More than any launcher sends.
const LONGEST: u64 = 64 * 1024;

impl Launch {
    /// The line to write to the agent's stdin, with its end. It holds the secret.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("names and numbers are always JSON");
        line.push('\n');
        line
    }

    /// Reads the line; blocks until it is there.
    ///
    /// # Errors
    /// [`Error::Missing`] at the end of stdin, [`Error::Malformed`] for anything else than such a line.
    pub fn read(stdin: &mut impl BufRead) -> Result<Self, Error> {
        let mut line = Vec::new();
        stdin.take(LONGEST).read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(Error::Missing);
        }
        serde_json::from_slice(&line).map_err(|error| Error::Malformed {
            line: error.line(),
            column: error.column(),
        })
    }
}

mod hex {
    use elasticrun_protocol::auth::Secret;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        secret: &Secret,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&secret.to_hex())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Secret, D::Error> {
        let text = String::deserialize(deserializer)?;
        Secret::from_hex(&text).ok_or_else(|| D::Error::custom("not a secret"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            driver: vec!["127.0.0.1:4000".into()],
            secret: Secret::from_token("a"),
            host: HostId::new("localhost"),
            slots: 2,
            run_id: Some("run".into()),
            network_interface: None,
        }
    }

    #[test]
    fn a_line_is_read_back_and_what_follows_is_left() {
        let text = launch().to_line() + "hint\n";
        let mut stdin = text.as_bytes();
        assert_eq!(Launch::read(&mut stdin).unwrap(), launch());
        assert_eq!(stdin, b"hint\n");
    }

    #[test]
    fn what_is_no_line_is_refused_without_showing_it() {
        for text in ["", "{\"driver\":[]", &"x".repeat(200_000)] {
            let error = Launch::read(&mut text.as_bytes()).unwrap_err();
            assert!(matches!(error, Error::Missing), "{error}");
        }
        let secret = Secret::from_token("a").to_hex();
        let text = launch().to_line().replace("\"slots\":2", "\"slots\":-2");
        let error = Launch::read(&mut text.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains(&secret));
        assert!(!format!("{:?}", launch()).contains(&secret));
    }
}

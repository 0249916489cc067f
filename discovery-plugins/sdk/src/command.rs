//! What the host tells a plugin, or asks of it.

use serde::{Deserialize, Serialize};

use crate::PluginError;

/// What the host tells a plugin, or asks of it. On the wire it is `{"command": "draining", "host": "i-1"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Command {
    /// The job is leaving a host, by its id. The source may be told to wait.
    Draining {
        /// Its id, as the plugin listed it.
        host: String,
    },
    /// The job has left a host, by its id: the source may take it.
    Drained {
        /// Its id, as the plugin listed it.
        host: String,
    },
    /// Whether the plugin could do its work, as far as it can tell without changing anything: access, permissions.
    SelfTest,
}

/// Reads a command; none if it is one that this build does not know.
pub(crate) fn read(json: &[u8]) -> Result<Option<Command>, PluginError> {
    #[derive(Deserialize)]
    struct Named {
        command: String,
    }
    let bad = |error: serde_json::Error| PluginError::retryable(format!("bad command: {error}"));
    let Named { command } = serde_json::from_slice(json).map_err(bad)?;
    match command.as_str() {
        "draining" | "drained" | "self-test" => serde_json::from_slice(json).map(Some).map_err(bad),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_crosses_and_a_new_one_is_no_error() {
        let host = "i-1".to_owned();
        for (command, json) in [
            (
                Command::Draining { host: host.clone() },
                r#"{"command":"draining","host":"i-1"}"#,
            ),
            (
                Command::Drained { host },
                r#"{"command":"drained","host":"i-1"}"#,
            ),
            (Command::SelfTest, r#"{"command":"self-test"}"#),
        ] {
            assert_eq!(serde_json::to_string(&command).unwrap(), json);
            assert_eq!(read(json.as_bytes()).unwrap(), Some(command));
        }
        assert_eq!(read(br#"{"command":"sing","song":1}"#).unwrap(), None);
        assert!(read(br#"{"command":"drained"}"#).is_err());
        assert!(read(b"[]").is_err());
    }
}

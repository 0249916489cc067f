//! Commands of the host to a plugin.

use serde::{Deserialize, Serialize};

use crate::PluginError;

/// A command of the host to a plugin. On the wire it is `{"command": "draining", "host": "i-1"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Command {
    /// The job drains a host. The plugin may delay its departure.
    Draining {
        /// The id of the host, as the plugin listed it.
        host: String,
    },
    /// The job has drained a host. The source may remove it.
    Drained {
        /// The id of the host, as the plugin listed it.
        host: String,
    },
    /// Check access and permissions, without changing anything.
    SelfTest,
}

/// Parses a command. `None` if this build does not know it.
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

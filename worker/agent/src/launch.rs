//! The settings of a launched agent: one JSON line on stdin, so that no secret is an argument or a variable.
//!
//! Stdin may stay open or end after the line. The agent detects the loss of its driver by the control connection.

use std::io::BufRead;

use elasticrun_protocol::HostId;
use elasticrun_tls::Credentials;
use serde::{Deserialize, Serialize};

use crate::settings::{SettingsError, read_settings};

/// The settings of an agent that a launcher starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Addresses of the driver (`host:port`), tried in turn.
    pub driver: Vec<String>,
    /// The keys of the host. An agent of an earlier release reads the job's secret alone.
    #[serde(flatten)]
    pub credentials: Credentials,
    /// The id of the host.
    pub host: HostId,
    /// Slots of the host.
    pub slots: u32,
    /// The run. With it the agent takes the host's lock before it dials the driver.
    #[serde(default)]
    pub run_id: Option<String>,
    /// The first of `network_interfaces`, for agents of earlier releases.
    #[serde(default)]
    pub network_interface: Option<String>,
    /// Interfaces for data between workers. The first one that this host has counts; without any, that of the route to the
    /// driver.
    #[serde(default)]
    pub network_interfaces: Vec<String>,
    /// All hosts of the job are on this machine, for as long as it runs.
    #[serde(default)]
    pub local_only: bool,
    /// The least level of the records that the agent writes to standard error, as JSON: `warn` or `debug`. Without it the
    /// agent writes warnings as text.
    #[serde(default)]
    pub log_level: Option<String>,
}

/// How agents are started, for error messages.
const ADVICE: &str =
    "`elasticrun agent` is started by a launcher, or by hand with --join HOST:PORT";

impl Launch {
    /// The line to write to the agent's stdin, with its line end. It contains the secret.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("names and numbers are always JSON");
        line.push('\n');
        line
    }

    /// Reads the line by [`read_settings`].
    ///
    /// # Errors
    /// The errors of [`read_settings`].
    pub fn read(stdin: &mut impl BufRead) -> Result<Self, SettingsError> {
        read_settings(stdin, ADVICE)
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::auth::Secret;
    use elasticrun_tls::Authority;

    use super::*;

    fn launch() -> Launch {
        let authority = Authority::new("run").unwrap();
        Launch {
            driver: vec!["127.0.0.1:4000".into()],
            credentials: Credentials::issue(&authority, &secret(), "localhost").unwrap(),
            host: HostId::new("localhost"),
            slots: 2,
            run_id: Some("run".into()),
            network_interface: None,
            network_interfaces: Vec::new(),
            local_only: false,
            log_level: Some("debug".into()),
        }
    }

    fn secret() -> Secret {
        Secret::from_hex(&"5e".repeat(32)).unwrap()
    }

    #[test]
    fn a_line_is_read_back_and_what_follows_is_left() {
        let launch = launch();
        let text = launch.to_line() + "hint\n";
        let mut stdin = text.as_bytes();
        assert_eq!(Launch::read(&mut stdin).unwrap(), launch);
        assert_eq!(stdin, b"hint\n");
    }

    #[test]
    fn what_is_no_line_is_refused_without_showing_it() {
        for text in ["", "{\"driver\":[]", &"x".repeat(200_000)] {
            let error = Launch::read(&mut text.as_bytes()).unwrap_err();
            assert!(matches!(error, SettingsError::Missing { .. }), "{error}");
        }
        let secret = secret().to_hex();
        let text = launch().to_line().replace("\"slots\":2", "\"slots\":-2");
        let error = Launch::read(&mut text.as_bytes()).unwrap_err();
        assert!(matches!(error, SettingsError::Malformed { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains(&secret));
        assert!(!format!("{:?}", launch()).contains(&secret));
    }
}

//! The settings of a task service: one line of JSON on stdin. The pipe stays open; the service ends with it.

use std::{io::BufRead, net::IpAddr, time::Duration};

use elasticrun_agent::{AgentOptions, SettingsError, hex, read_settings};
use elasticrun_protocol::{auth::Secret, control::Task};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

/// How task services are started, for error messages.
const ADVICE: &str = "`elasticrun task-service` is started by a task of a cluster, not by hand";

/// How long to try to reach the driver, which was running when it requested the task.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings of a task service.
#[derive(Clone, Debug, Deserialize)]
pub struct Settings {
    /// Addresses of the driver (`host:port`), tried in turn.
    pub driver: Vec<String>,
    /// The job's secret, in hexadecimal digits.
    #[serde(deserialize_with = "hex::deserialize")]
    pub secret: Secret,
    /// The task of this service.
    pub task: Task,
    /// The process ids above this one. The service ends when the first of these processes ends.
    #[serde(default)]
    pub above: Vec<u32>,
    /// The address at which workers of other machines reach this one; by default that of the route to the driver.
    #[serde(default)]
    pub listen: Option<IpAddr>,
    /// The interfaces whose address other machines reach, unless `listen` is set, with `,` between them.
    #[serde(default)]
    pub network_interface: Option<String>,
}

impl Settings {
    /// Reads the line by [`read_settings`].
    ///
    /// # Errors
    /// The errors of [`read_settings`].
    pub fn read(stdin: &mut impl BufRead) -> Result<Self, SettingsError> {
        read_settings(stdin, ADVICE)
    }

    /// The options of the agent. It ends when `abandoned` is cancelled.
    pub fn agent(self, abandoned: CancellationToken) -> AgentOptions {
        let host = self.task.host();
        let interfaces = self.network_interface.iter();
        let interfaces = interfaces.flat_map(|names| names.split(','));
        let interfaces = interfaces.map(|name| name.trim().to_owned()).collect();
        AgentOptions {
            driver: self.driver,
            listen: self.listen,
            network_interfaces: interfaces,
            local_only: false,
            task: Some(self.task),
            abandoned,
            connect_timeout: CONNECT_TIMEOUT,
            ..AgentOptions::joining(String::new(), self.secret, 1, Some(host))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(slot: &str) -> String {
        let secret = Secret::from_token("a").to_hex();
        let task = format!(r#"{{"machine":"10.0.0.1","slot":{slot},"attempt":7}}"#);
        format!("{{\"driver\":[\"d:1\"],\"secret\":\"{secret}\",\"task\":{task}}}\n")
    }

    #[test]
    fn an_attempt_is_a_host_of_its_own_with_one_slot() {
        let settings = Settings::read(&mut line("3").as_bytes()).unwrap();
        let agent = settings.agent(CancellationToken::new());
        assert_eq!(agent.host.unwrap().as_str(), "10.0.0.1/3.7");
        assert_eq!((agent.slots, agent.self_registered), (1, true));
    }

    #[test]
    fn what_is_no_line_is_refused_without_showing_it() {
        for text in ["", "{\"driver\":[]", &"x".repeat(200_000)] {
            let error = Settings::read(&mut text.as_bytes()).unwrap_err();
            assert!(matches!(error, SettingsError::Missing { .. }), "{error}");
        }
        let error = Settings::read(&mut line("-3").as_bytes()).unwrap_err();
        assert!(matches!(error, SettingsError::Malformed { .. }), "{error}");
        let secret = Secret::from_token("a").to_hex();
        assert!(!format!("{error} {error:?}").contains(&secret));
        let settings = Settings::read(&mut line("3").as_bytes()).unwrap();
        assert!(!format!("{settings:?}").contains(&secret));
    }
}

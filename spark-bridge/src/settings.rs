//! The settings of a task service: one line of JSON on stdin. The pipe stays open; the service ends with it.

use std::{io::BufRead, net::IpAddr, time::Duration};

use elasticrun_agent::{AgentOptions, JoinToken, SettingsError, read_settings};
use elasticrun_protocol::control::Task;
use elasticrun_tls::token::Token;
use serde::{Deserialize, Deserializer, de::Error as _};
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
    /// The token by which the task gets the keys of the job.
    #[serde(deserialize_with = "token")]
    pub token: Token,
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
            ..AgentOptions::joining(
                vec![String::new()],
                JoinToken::Given(self.token),
                1,
                Some(host),
            )
        }
    }
}

fn token<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn token() -> String {
        let token = Token::random(SystemTime::now()).unwrap();
        token.expose().to_string()
    }

    fn line(slot: &str, token: &str) -> String {
        let task = format!(r#"{{"machine":"10.0.0.1","slot":{slot},"attempt":7}}"#);
        format!("{{\"driver\":[\"d:1\"],\"token\":\"{token}\",\"task\":{task}}}\n")
    }

    #[test]
    fn an_attempt_is_a_host_of_its_own_with_one_slot() {
        let settings = Settings::read(&mut line("3", &token()).as_bytes()).unwrap();
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
        let token = token();
        let error = Settings::read(&mut line("-3", &token).as_bytes()).unwrap_err();
        assert!(matches!(error, SettingsError::Malformed { .. }), "{error}");
        let secret = token.split('.').nth(2).unwrap();
        assert!(!format!("{error} {error:?}").contains(secret));
        let settings = Settings::read(&mut line("3", &token).as_bytes()).unwrap();
        assert!(!format!("{settings:?}").contains(secret));
        let error = Settings::read(&mut line("3", "00").as_bytes()).unwrap_err();
        assert!(matches!(error, SettingsError::Malformed { .. }), "{error}");
    }
}

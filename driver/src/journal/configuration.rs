//! What a run was started with.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf};

use elasticrun_protocol::auth::Secret;
use elasticrun_tls::StoredAuthority;
use serde::{Deserialize, Serialize};

use super::{Entries, Entry};
use crate::{config::Words, join_tokens::JoinTokens, trust::Trust};

/// The key of the entry.
pub(super) const KEY: &str = "config";

/// What a later driver needs to be the driver of the same run. It is durable before anything starts. It holds secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The settings.
    pub settings: Words,
    /// The user's command.
    pub command: Vec<String>,
    /// The working directory of the first driver. `None` if it is not UTF-8.
    #[serde(default)]
    pub directory: Option<String>,
    /// Variables for the workers, as the agents have them.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where the driver listens.
    pub listen: SocketAddr,
    /// The job's secret in hexadecimal.
    secret: String,
    /// The job's certificate authority. A release without TLS has none.
    #[serde(default)]
    authority: Option<StoredAuthority>,
    /// The text of the token by which hosts join, if they may.
    #[serde(default)]
    token: Option<String>,
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Configuration");
        text.field("command", &self.command)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

impl Configuration {
    /// The configuration of a run.
    #[must_use]
    pub fn new(
        settings: Words,
        command: Vec<String>,
        directory: Option<String>,
        env: BTreeMap<String, String>,
        listen: SocketAddr,
        trust: &Trust,
    ) -> Self {
        Self {
            settings,
            command,
            directory,
            env,
            listen,
            secret: trust.secret().to_hex(),
            authority: Some(trust.authority()),
            token: trust.token().map(|token| token.expose().to_string()),
        }
    }

    /// The trust of the run, whose join token is in this file if there is one. `None` if a part is missing, or cannot be
    /// used.
    #[must_use]
    pub fn trust(&self, token_file: Option<PathBuf>) -> Option<Trust> {
        let secret = Secret::from_hex(&self.secret)?;
        let tokens = match &self.token {
            Some(text) => Some(JoinTokens::restore(text.parse().ok()?, token_file)),
            None => None,
        };
        Trust::restore(self.authority.as_ref()?, secret, tokens).ok()
    }

    /// The configuration in these entries. `None` if it is missing or cannot be read.
    #[must_use]
    pub fn read(entries: &Entries) -> Option<Self> {
        serde_json::from_slice(entries.get(KEY)?).ok()
    }

    /// Whether there is a configuration, although this release may not be able to read it.
    pub(super) fn is_in(entries: &Entries) -> bool {
        entries.contains_key(KEY)
    }

    /// The entry.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let value = serde_json::to_vec(self).expect("text and maps of text are JSON");
        Entry::new(KEY, value)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use elasticrun_tls::token::Token;

    use super::*;

    #[test]
    fn a_configuration_is_read_as_it_was_written_and_shows_no_secret() {
        let token = Token::random(SystemTime::now()).expect("randomness");
        let trust =
            Trust::new("run", Some(JoinTokens::new(token.clone(), None))).expect("randomness");
        let env = [("TOKEN".to_owned(), "private".to_owned())];
        let listen = SocketAddr::from(([127, 0, 0, 1], 61_000));
        let command = vec!["train".to_owned()];
        let written =
            Configuration::new(Words::default(), command, None, env.into(), listen, &trust);
        let Entry { key, value } = written.entry();
        let entries = Entries::from([(key, value.expect("a value"))]);
        let read = Configuration::read(&entries).expect("sound");
        assert_eq!(read, written);
        let restored = read.trust(None).expect("sound");
        assert_eq!(restored.secret(), trust.secret());
        assert_eq!(restored.authority(), trust.authority());
        assert_eq!(restored.token(), Some(token));
        let shown = format!("{read:?} {restored:?}");
        assert!(!shown.contains("private") && !shown.contains(&trust.secret().to_hex()));
    }

    #[test]
    fn fields_of_a_newer_release_are_ignored_and_missing_ones_have_defaults() {
        let text = br#"{"settings":{"given":{"colour":["red"]},"more":1},"command":["a"],
            "listen":"[::]:7","secret":"00","later":{}}"#;
        let read = Configuration::read(&Entries::from([(KEY.to_owned(), text.to_vec())]));
        let read = read.expect("it can be read");
        assert_eq!((read.directory.clone(), read.env.len()), (None, 0));
        assert!(read.trust(None).is_none());
        assert!(
            read.settings.read().is_ok(),
            "an unknown setting is ignored"
        );
    }
}

//! All settings of a job as words, so that a later driver reads the same settings.

use std::{collections::BTreeMap, env, fmt};

use serde::{Deserialize, Serialize};
use toml::Value;

use super::{
    error::Error,
    layer::{Layers, Origin},
    table::{Config, KEYS},
};

/// The words of each setting. Unlike the output of `config show` they contain the values of variables (`--env`), which may be
/// secrets.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// Settings that a user has set.
    #[serde(default)]
    given: BTreeMap<String, Vec<String>>,
    /// The others that have a value: the defaults of the release that wrote them.
    #[serde(default)]
    defaults: BTreeMap<String, Vec<String>>,
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.given.keys()).finish()
    }
}

impl Words {
    /// The settings with these words. A setting without words has the default of this release. Unknown ones are ignored.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn read(&self) -> Result<Config, Error> {
        let mut layers = Layers::default();
        let known = |key: &String| KEYS.iter().any(|known| known.name == key);
        for (all, origin) in [
            (&self.defaults, Origin::Default),
            (&self.given, Origin::Journal),
        ] {
            for (key, words) in all.iter().filter(|(key, _)| known(key)) {
                layers.add(key, origin.clone(), words.clone());
            }
        }
        Config::read(&layers)
    }
}

impl Config {
    /// The words of all settings with a value. Variables that pass their value of this environment on have it.
    #[must_use]
    pub fn words(&self) -> Words {
        let mut words = Words::default();
        for row in self.rows() {
            let Some(value) = row.value else { continue };
            let all = match row.origin {
                Origin::Default => &mut words.defaults,
                _ => &mut words.given,
            };
            let of_row = match row.key {
                "env" => self.variables(),
                _ => of_value(value),
            };
            all.insert(row.key.to_owned(), of_row);
        }
        words
    }

    fn variables(&self) -> Vec<String> {
        let written = |variable: &super::Variable| {
            let name = &variable.name;
            let value = variable.value.clone().or_else(|| env::var(name).ok());
            value.map_or_else(|| name.clone(), |value| format!("{name}={value}"))
        };
        self.env.value.iter().map(written).collect()
    }
}

fn of_value(value: Value) -> Vec<String> {
    let word = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match value {
        Value::Array(values) => values.into_iter().map(word).collect(),
        single => vec![word(single)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FlagWords, Settings, Sources};

    fn config(flags: &[(&'static str, &[&str])]) -> Config {
        let flag = |(key, words): &(&'static str, &[&str])| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            let spelled = format!("--{key}");
            (*key, FlagWords { spelled, words })
        };
        let flags = flags.iter().map(flag).collect();
        let sources = Sources {
            flags,
            ..Sources::default()
        };
        sources.read().expect("sound")
    }

    fn settings(config: &Config) -> Settings {
        Settings::resolve(config, vec!["true".to_owned()]).expect("consistent")
    }

    #[test]
    fn a_job_has_the_same_settings_again() {
        for flags in [
            &[("np", &["2"][..])][..],
            &[
                ("np", &["4"][..]),
                ("min-np", &["2"]),
                ("hosts", &["a:2,[::1]:2"]),
                ("env", &["A=1 2", "PATH"]),
                ("blacklist-cooldown-range", &["0", "90"]),
                ("ssh-option", &["A=b", "C=d"]),
                ("heartbeat-timeout", &["1500ms"]),
                ("push-binary", &["true"]),
                ("slots-per-host", &["3"]),
                ("log-level", &["debug"]),
            ],
            &[("discovery", &["static:hosts=a"][..]), ("min-np", &["2"])],
        ] {
            let before = config(flags);
            let text = serde_json::to_vec(&before.words()).expect("JSON");
            let words: Words = serde_json::from_slice(&text).expect("the same");
            let after = words.read().expect("sound");
            let (mut expected, found) = (settings(&before), settings(&after));
            for variable in &mut expected.launch.env {
                let value = env::var(&variable.name).ok();
                variable.value = variable.value.take().or(value);
            }
            assert_eq!(found, expected);
            assert_eq!(after.words(), before.words());
        }
    }

    #[test]
    fn a_default_of_another_release_stays_and_is_not_given() {
        let mut words = config(&[]).words();
        words
            .defaults
            .insert("max-host-failures".to_owned(), vec!["9".to_owned()]);
        words
            .defaults
            .insert("restart-mode".to_owned(), vec!["process".to_owned()]);
        let read = words.read().expect("sound");
        assert_eq!(read.max_host_failures.value, 9);
        assert!(
            !read.restart_mode.is_given(),
            "the job stays a standard one"
        );
    }

    #[test]
    fn values_of_variables_are_not_shown() {
        let words = config(&[("env", &["TOKEN=private"])]).words();
        assert!(!format!("{words:?}").contains("private"));
    }

    #[test]
    fn an_invalid_value_is_named() {
        let mut words = Words::default();
        words.given.insert("np".to_owned(), vec!["many".to_owned()]);
        let error = words.read().expect_err("invalid").to_string();
        assert!(error.starts_with("journal: np = many: expected"), "{error}");
    }
}

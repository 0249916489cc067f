//! The Spark cluster of `--spark`.

use toml::Value;

use super::{error::Error, group, table::Config, value::Setting};

/// The master URL of a Spark cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Master(pub(super) String);

/// Prefixes of master URLs, and complete ones.
const PREFIXES: [&str; 4] = ["spark://", "k8s://", "local-cluster[", "local["];
const WORDS: [&str; 2] = ["yarn", "local"];

impl Setting for Master {
    fn read(words: &[String]) -> Result<Self, String> {
        let known = |word: &str| {
            let named = |start: &&str| {
                word.strip_prefix(*start)
                    .is_some_and(|rest| !rest.is_empty())
            };
            WORDS.contains(&word) || PREFIXES.iter().any(named)
        };
        match words {
            [word] if known(word.trim()) => Ok(Self(word.trim().to_owned())),
            _ => Err("spark://HOST:PORT, yarn, k8s://URL or local-cluster[N,CORES,MIB]".to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.0.clone()))
    }
}

/// Checks that `--spark` is the only source of hosts.
///
/// # Errors
/// There is another source.
pub(super) fn check_no_other_source(config: &Config) -> Result<(), Error> {
    if config.spark.value.is_none() {
        return Ok(());
    }
    let Config {
        hosts,
        hostfile,
        host_discovery_script: script,
        discovery,
        ..
    } = config;
    let others = [
        (hosts.value.is_some(), &hosts.origin, "hosts"),
        (hostfile.value.is_some(), &hostfile.origin, "hostfile"),
        (
            script.value.is_some(),
            &script.origin,
            "host-discovery-script",
        ),
        (!discovery.value.is_empty(), &discovery.origin, "discovery"),
    ];
    let named = others.iter().find(|(given, ..)| *given);
    let named = named.map(|(_, origin, key)| origin.name(key));
    let group = || {
        group::specs(config)
            .next()
            .map(|spec| format!("hosts of {}", spec.name))
    };
    match named.or_else(group) {
        None => Ok(()),
        Some(other) => {
            let why = format!("not together with {other}: Spark's executors are the hosts");
            Err(config.spark.contradicts("spark", why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_recognized() {
        let read = |word: &str| Master::read(&[word.to_owned()]);
        for word in [
            "spark://a:7077",
            "yarn",
            "k8s://https://a",
            "local-cluster[2,1,1024]",
        ] {
            assert_eq!(read(word), Ok(Master(word.to_owned())));
        }
        for word in ["", "a:7077", "spark://", "yarn-client"] {
            assert!(read(word).is_err(), "{word}");
        }
    }
}

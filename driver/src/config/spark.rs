//! The Spark cluster of `--spark`.

use toml::Value;

use super::value::Setting;

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

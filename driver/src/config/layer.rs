//! The origins of values and their precedence: defaults < file < environment < flags.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use super::{error::Written, value::Shape};

/// The origin of a value. The order is that of precedence: the greater origin wins.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// The value is the default.
    Default,
    /// The value is in the journal of the run.
    Journal,
    /// A line of the file that `--config` names.
    File {
        /// The file, as the user named it.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// An environment variable, by name.
    Environment(String),
    /// A flag, as the user spelled it.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Journal => f.write_str("journal"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

impl Origin {
    /// The setting `key` with these words, in the syntax of this origin.
    pub(super) fn written(&self, key: &str, words: &[String]) -> Written {
        let shown = words
            .iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(" ");
        Written(match self {
            Self::Default => format!("{} {shown}", flag(key)),
            Self::File { .. } | Self::Journal => format!("{self}: {key} = {shown}"),
            Self::Environment(name) => format!("{name}={shown}"),
            Self::Flag(flag) if words.is_empty() => flag.clone(),
            Self::Flag(flag) => format!("{flag} {shown}"),
        })
    }

    /// The name of the setting at this origin, for a message about another setting.
    pub(super) fn name(&self, key: &str) -> String {
        match self {
            Self::Default => flag(key),
            Self::File { .. } | Self::Journal => format!("{key} ({self})"),
            Self::Environment(name) | Self::Flag(name) => name.clone(),
        }
    }

    /// Whether both are of the same kind. Two values of the same kind contradict each other; else the greater one wins.
    pub(super) fn same_source(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains(char::is_whitespace) {
        format!("{word:?}")
    } else {
        word.to_owned()
    }
}

/// The canonical flag of a setting: its key, except for Horovod's `-np`.
#[must_use]
pub fn flag(key: &str) -> String {
    if key == "np" {
        "-np".to_owned()
    } else {
        format!("--{key}")
    }
}

/// The environment variable of a setting: `ELASTICRUN_MIN_NP` for `min-np`.
#[must_use]
pub fn variable(key: &str) -> String {
    format!("ELASTICRUN_{}", key.replace('-', "_").to_ascii_uppercase())
}

/// A value as the user wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Given {
    pub(super) origin: Origin,
    pub(super) words: Vec<String>,
}

/// The values of all sources: for each key the words of the source that wins.
#[derive(Clone, Default, Debug)]
pub(super) struct Layers(BTreeMap<String, Given>);

impl Layers {
    /// Adds a value. It replaces a value of a lower or equal source.
    pub(super) fn add(&mut self, key: &str, origin: Origin, words: Vec<String>) {
        let wins = self
            .0
            .get(key)
            .is_none_or(|present| present.origin <= origin || present.origin.same_source(&origin));
        if wins {
            self.0.insert(key.to_owned(), Given { origin, words });
        }
    }

    /// Adds the values of `keys` from the environment. An empty variable counts as unset. In the variable of a list, `;`
    /// separates the values. Variables that are no settings are ignored.
    pub(super) fn add_environment<'a>(
        &mut self,
        keys: impl IntoIterator<Item = (&'a str, Shape)>,
        lookup: impl Fn(&str) -> Option<String>,
    ) {
        for (key, shape) in keys {
            let name = variable(key);
            let Some(text) = lookup(&name).filter(|text| !text.trim().is_empty()) else {
                continue;
            };
            let words = match shape {
                Shape::Many => text.split(';').map(|word| word.trim().to_owned()).collect(),
                Shape::Pair => text.split_whitespace().map(str::to_owned).collect(),
                Shape::One | Shape::Switch => vec![text],
            };
            self.add(key, Origin::Environment(name), words);
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Given> {
        self.0.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(line: usize) -> Origin {
        Origin::File {
            path: "job.toml".into(),
            line,
        }
    }

    #[test]
    fn the_greater_source_wins_whatever_the_order() {
        let origins = [
            file(9),
            Origin::Environment("ELASTICRUN_NP".to_owned()),
            Origin::Flag("-np".to_owned()),
        ];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut layers = Layers::default();
            for index in order {
                layers.add("np", origins[index].clone(), vec![index.to_string()]);
            }
            assert_eq!(
                layers.get("np").map(|given| given.words.as_slice()),
                Some(&["2".to_owned()][..])
            );
        }
    }

    #[test]
    fn only_variables_of_settings_are_looked_at() {
        let mut layers = Layers::default();
        let keys = [
            ("min-np", Shape::One),
            ("np", Shape::One),
            ("plugin-dir", Shape::Many),
        ];
        layers.add_environment(keys, |name| match name {
            "ELASTICRUN_MIN_NP" => Some("3".to_owned()),
            "ELASTICRUN_NP" => Some(" ".to_owned()),
            "ELASTICRUN_PLUGIN_DIR" => Some("/a; /b".to_owned()),
            other => panic!("{other} was asked for"),
        });
        assert_eq!(
            layers.get("min-np").map(|given| given.words.clone()),
            Some(vec!["3".to_owned()])
        );
        assert_eq!(layers.get("np"), None);
        assert_eq!(
            layers.get("plugin-dir").map(|given| given.words.clone()),
            Some(vec!["/a".to_owned(), "/b".to_owned()])
        );
    }

    #[test]
    fn a_value_is_named_as_it_was_written() {
        let words = ["0".to_owned()];
        assert_eq!(
            Origin::Flag("-np".to_owned()).written("np", &words).0,
            "-np 0"
        );
        assert_eq!(
            file(3).written("min-np", &words).0,
            "job.toml:3: min-np = 0"
        );
        let variable = Origin::Environment(variable("min-np"));
        assert_eq!(variable.written("min-np", &words).0, "ELASTICRUN_MIN_NP=0");
    }
}

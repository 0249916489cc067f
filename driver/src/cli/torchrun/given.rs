//! The options that a user has given, on the command line or by variables `PET_*`.

use std::collections::BTreeMap;

use clap::{ArgMatches, parser::ValueSource};

use super::{
    super::argv::Words,
    options::{ALL, Known},
};
use crate::config::Error;

/// The given options.
#[derive(Debug)]
pub(super) struct Given {
    values: BTreeMap<&'static str, Value>,
}

/// An option and where it is given.
#[derive(Clone, Debug)]
struct Value {
    /// `true` for an option without a value.
    text: String,
    /// As the user spelled it, or the name of the variable.
    spelled: String,
}

impl Given {
    /// Reads the words that clap has parsed, and the variables of options that are not among them.
    ///
    /// # Errors
    /// A variable of an option without a value is neither 0 nor 1.
    pub(super) fn read(
        matches: &ArgMatches,
        words: &Words,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let mut values = BTreeMap::new();
        for known in ALL {
            let value = match of_words(matches, words, known) {
                Some(value) => Some(value),
                None => of_environment(environment, known)?,
            };
            values.extend(value.map(|value| (known.name, value)));
        }
        Ok(Self { values })
    }

    /// The value of an option.
    pub(super) fn value(&self, name: &str) -> Option<&String> {
        self.values.get(name).map(|value| &value.text)
    }

    /// Whether an option is given.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The option as the user spelled it.
    pub(super) fn spelled(&self, name: &str) -> String {
        let given = self.values.get(name);
        given.map_or_else(|| format!("--{name}"), |value| value.spelled.clone())
    }

    /// The error that this option has a wrong value, or contradicts another one.
    pub(super) fn refuse(&self, name: &str, why: impl AsRef<str>) -> Error {
        let is_variable = !self.spelled(name).starts_with('-');
        let text = match self.value(name) {
            Some(text) if text != "true" && is_variable => format!("={text}"),
            Some(text) if text != "true" => format!(" {text}"),
            _ => String::new(),
        };
        Error::Usage {
            message: format!("{}{text}: {}", self.spelled(name), why.as_ref()),
        }
    }
}

fn of_words(matches: &ArgMatches, words: &Words, known: Known) -> Option<Value> {
    let name = known.name;
    if matches.value_source(name) != Some(ValueSource::CommandLine) {
        return None;
    }
    let spelled = words.spelled.get(name).cloned();
    Some(Value {
        text: match known.value {
            None => "true".to_owned(),
            Some(_) => matches.get_one::<String>(name)?.clone(),
        },
        spelled: spelled.unwrap_or_else(|| format!("--{name}")),
    })
}

/// `PET_NPROC_PER_NODE=4`. An option without a value is set by 1.
fn of_environment(
    environment: &BTreeMap<String, String>,
    known: Known,
) -> Result<Option<Value>, Error> {
    let variable = format!("PET_{}", known.name.replace('-', "_").to_ascii_uppercase());
    let Some(text) = environment.get(&variable).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = match (known.value, text.trim()) {
        (Some(_), _) => text.clone(),
        (None, "1") => "true".to_owned(),
        (None, "0") => return Ok(None),
        (None, _) => {
            return Err(Error::Usage {
                message: format!("{variable}={text}: expected 0 or 1"),
            });
        }
    };
    Ok(Some(Value {
        text,
        spelled: variable,
    }))
}

//! A variable for workers on other hosts (`--env`).

use toml::Value;

use super::value::Setting;

/// `NAME`, with its value in the driver's environment, or `NAME=VALUE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The value, if it is given explicitly.
    pub value: Option<String>,
}

impl Setting for Variable {
    fn read(words: &[String]) -> Result<Self, String> {
        let [word] = words else {
            return Err(ALLOWED.to_owned());
        };
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let sound = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && (name.bytes()).all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !word.contains('\0');
        if !sound {
            return Err(ALLOWED.to_owned());
        }
        if name.starts_with("ELASTICRUN_") {
            return Err(
                "a name without ELASTICRUN_ in front: these are set for each worker".to_owned(),
            );
        }
        Ok(Self {
            name: name.to_owned(),
            value,
        })
    }

    fn show(&self) -> Option<Value> {
        // The value may be a secret, and users paste the output into reports.
        Some(Value::String(match self.value {
            None => self.name.clone(),
            Some(_) => format!("{}=...", self.name),
        }))
    }
}

const ALLOWED: &str = "NAME or NAME=VALUE, with a name of letters, digits and _";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_a_name_or_a_name_and_a_value() {
        for (word, name, value) in [
            ("DATA", "DATA", None),
            ("DATA=", "DATA", Some("")),
            ("_a1=x=y z", "_a1", Some("x=y z")),
        ] {
            let read = Variable::read(&[word.to_owned()]).expect(word);
            assert_eq!((read.name.as_str(), read.value.as_deref()), (name, value));
        }
        for wrong in ["", "=x", "1A", "A B", "A-B=1", "ELASTICRUN_NP=2", "A=\0"] {
            assert!(Variable::read(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_is_not_shown() {
        let read = Variable::read(&["TOKEN=secret".to_owned()]).expect("sound");
        assert_eq!(read.show(), Some(Value::String("TOKEN=...".to_owned())));
    }
}

//! `--discovery NAME[:key=value,...]`: a plugin and its options.
//!
//! A value ends at the next comma. Inside a value, a comma is written `\,` and a backslash `\\`, as in
//! `--discovery 'static:hosts=a:4\,b:4'`. Keys are lower-case letters, digits and `_`. A `-` counts as `_`.
//!
//! Values are strings. The plugin's type decides whether `4` is a number.

use std::{fmt, str::FromStr};

use serde_json::{Map, Value};

/// A plugin and its options. It prints in the form from which it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The plugin.
    pub name: String,
    /// The options for its `create`.
    pub options: Map<String, Value>,
}

/// Why a specification is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The name is invalid.
    #[error("{0:?} is not the name of a plugin; allowed are small letters, digits and '-'")]
    Name(String),
    /// A key is invalid.
    #[error(
        "{0:?} is not an option; allowed is key=value, the key of small letters, digits and '_'; \
         a comma inside a value is written \\,"
    )]
    Key(String),
    /// A key has no value.
    #[error("the option {0} has no value; write {0}=VALUE, and a comma inside a value as \\,")]
    NoValue(String),
    /// A key is repeated.
    #[error("the option {0} is given twice; a comma inside a value is written \\,")]
    Repeated(String),
    /// A backslash before another character, or at the end.
    #[error("the value of {0} has a backslash that is not \\, or \\\\; write a backslash as \\\\")]
    Escape(String),
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, mut rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(good) {
            return Err(SpecError::Name(shown(name)));
        }
        let mut options = Map::new();
        while let Some(text) = rest {
            let (key, text) = key(text)?;
            let (value, behind) = value(&key, text)?;
            if options.insert(key.clone(), Value::String(value)).is_some() {
                return Err(SpecError::Repeated(shown(&key)));
            }
            rest = behind;
        }
        Ok(Self {
            name: name.to_owned(),
            options,
        })
    }
}

/// At most 80 characters of a mistake, for the error.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

fn key(text: &str) -> Result<(String, &str), SpecError> {
    let end = text.find(['=', ',']).unwrap_or(text.len());
    let (key, rest) = text.split_at(end);
    let good = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
    };
    if key.is_empty() || !key.bytes().all(good) {
        return Err(SpecError::Key(shown(key)));
    }
    let key = key.replace('-', "_");
    match rest.strip_prefix('=') {
        Some(value) => Ok((key, value)),
        None => Err(SpecError::NoValue(shown(&key))),
    }
}

/// A value and, if a comma follows, the rest after it.
fn value<'a>(key: &str, text: &'a str) -> Result<(String, Option<&'a str>), SpecError> {
    let mut value = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ',' => return Ok((value, Some(characters.as_str()))),
            '\\' => match characters.next() {
                Some(escaped @ (',' | '\\')) => value.push(escaped),
                _ => return Err(SpecError::Escape(shown(key))),
            },
            plain => value.push(plain),
        }
    }
    Ok((value, None))
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (index, (key, value)) in self.options.iter().enumerate() {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            write!(f, "{}{key}=", if index == 0 { ':' } else { ',' })?;
            f.write_str(&value.replace('\\', "\\\\").replace(',', "\\,"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parsed(text: &str) -> (String, Value) {
        let spec: Spec = text.parse().unwrap();
        (spec.name, Value::Object(spec.options))
    }

    fn refused(text: &str) -> String {
        text.parse::<Spec>().unwrap_err().to_string()
    }

    #[test]
    fn a_specification_is_a_name_and_options() {
        assert_eq!(parsed("aws-asg"), ("aws-asg".into(), json!({})));
        assert_eq!(
            parsed("script:path=/a b/c:d=e"),
            ("script".into(), json!({"path": "/a b/c:d=e"}))
        );
        assert_eq!(
            parsed(r#"static:hosts=a:4\,b:4,x-y=,z="\\""#),
            (
                "static".into(),
                json!({"hosts": "a:4,b:4", "x_y": "", "z": "\"\\\""})
            )
        );
    }

    #[test]
    fn a_refusal_says_what_is_allowed() {
        let name =
            r#""A b" is not the name of a plugin; allowed are small letters, digits and '-'"#;
        assert_eq!(refused("A b"), name);
        for text in ["", ":k=v", "-a", "a/b", "../x"] {
            assert!(
                refused(text).contains("is not the name of a plugin"),
                "{text}"
            );
        }
        for text in ["a:", "a:=v", "a:k=v,", "a:K=v", "a:k=v,,l=w"] {
            assert!(
                refused(text).contains("is not an option; allowed is key=value"),
                "{text}"
            );
        }
        assert_eq!(
            refused("a:k,l=v"),
            r"the option k has no value; write k=VALUE, and a comma inside a value as \,"
        );
        assert_eq!(
            refused("a:k=v,k=w"),
            r"the option k is given twice; a comma inside a value is written \,"
        );
        assert!(refused("static:hosts=a:4,b:4").starts_with(r#""b:4" is not an option"#));
        assert_eq!(
            refused(r"a:k=\d"),
            r"the value of k has a backslash that is not \, or \\; write a backslash as \\"
        );
        assert!(refused(r"a:k=v\").contains("has a backslash"));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_parsed_again(
            name in "[a-z0-9][a-z0-9-]{0,5}",
            options in prop::collection::btree_map("[a-z0-9_]{1,4}", "[ -~é\n]{0,8}", 0..4),
        ) {
            let options = options.into_iter().map(|(key, value)| (key, Value::String(value)));
            let spec = Spec { name, options: options.collect() };
            prop_assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
        }

        #[test]
        fn any_text_is_taken_or_refused(text in "[a:=,\\\\\"b-]{0,20}|.{0,20}") {
            let _ = text.parse::<Spec>();
        }
    }
}

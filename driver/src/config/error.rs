//! Mistakes in a command line, a file or a variable, each as one line.

use std::{fmt, path::PathBuf};

use elasticrun_plugin_sdk::text::is_invisible;

/// Why nothing was started. It prints as one line, for any input.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// A value that its setting does not allow.
    #[error("{written}: expected {allowed}")]
    Value {
        /// The setting and its value, as the user wrote them.
        written: Written,
        /// What is allowed, as the end of a sentence.
        allowed: String,
    },
    /// Valid values that contradict each other.
    #[error("{written}: {}", OneLine(why))]
    Combination {
        /// The setting to change and its value.
        written: Written,
        /// What it contradicts, and what is allowed.
        why: String,
    },
    /// A setting without a default was not given.
    #[error("{flag}: missing: {why}")]
    Missing {
        /// The flag that would set it.
        flag: &'static str,
        /// Why it is needed, and what to write.
        why: String,
    },
    /// A key in a configuration file that is no setting.
    #[error("{}:{line}: {}: no such setting{}", OneLine(&path.display().to_string()), OneLine(key), suggestion(nearest))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The key as written.
        key: String,
        /// The most similar setting.
        nearest: Option<String>,
    },
    /// A configuration file that is not TOML.
    #[error("{}:{line}: {}: expected TOML, a line like min-np = 2", OneLine(&path.display().to_string()), OneLine(message))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The message of the parser.
        message: String,
    },
    /// An unusable file that a setting names.
    #[error("{written}: {}", OneLine(why))]
    File {
        /// The setting and the path.
        written: Written,
        /// The message of the system or of the file's parser.
        why: String,
    },
    /// An unparsable command line.
    #[error("{}", OneLine(message))]
    Usage {
        /// The option, and what is allowed.
        message: String,
    },
}

impl Error {
    /// The code under which `docs/errors.md` explains it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage { .. } => "E201",
            Self::Value { .. } => "E202",
            Self::Combination { .. } => "E203",
            Self::Missing { .. } => "E204",
            Self::File { .. } => "E205",
            Self::UnknownKey { .. } => "E206",
            Self::Syntax { .. } => "E207",
        }
    }
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(
        || "; all are listed by elasticrun config show".to_owned(),
        |key| format!("; did you mean {key}?"),
    )
}

/// A setting with its value, spelled as where it was written: `--min-np 0`, `ELASTICRUN_MIN_NP=0`,
/// `job.toml:3: min-np = 0`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written(pub(super) String);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        OneLine(&self.0).fmt(f)
    }
}

/// Untrusted text on one line: invisible characters are escaped, and the length is limited.
pub(super) struct OneLine<'a>(pub(super) &'a str);

const MAX_CHARS: usize = 300;

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;

        for (index, c) in self.0.chars().enumerate() {
            if index == MAX_CHARS {
                return f.write_str("...");
            }
            if is_invisible(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_of_bounded_length() {
        let error = Error::Value {
            written: Written(format!(
                "--hosts a\nb\r\u{1b}[31m\u{2028}{}",
                "x".repeat(10_000)
            )),
            allowed: "hosts".to_owned(),
        };
        let line = error.to_string();
        assert!(
            line.starts_with(r"--hosts a\nb\r\u{1b}[31m\u{2028}xxx"),
            "{line}"
        );
        assert!(line.len() < 400, "{}", line.len());
        assert!(!line.contains(char::is_control));
        let unknown = Error::UnknownKey {
            path: "a\nb.toml".into(),
            line: 1,
            key: "zz".to_owned(),
            nearest: None,
        };
        assert!(unknown.to_string().starts_with(r"a\nb.toml:1: zz: no such"));
        let contradicts = Error::Combination {
            written: Written("-np 1".to_owned()),
            why: "not together with np (a\nb.toml:1)".to_owned(),
        };
        assert!(!contradicts.to_string().contains(char::is_control));
    }
}

//! Where the journal of a job is (`--journal`).

use std::path::PathBuf;

use toml::Value;

use super::value::Setting;

/// A place for the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalPlace {
    /// The job has no journal.
    None,
    /// In the state directory of the user.
    Auto,
    /// In this file.
    File(PathBuf),
}

impl Setting for JournalPlace {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] if word == "none" => Ok(Self::None),
            [word] if word == "auto" => Ok(Self::Auto),
            // The address of a service, and no path.
            [word] if word.contains("://") => Err(ALLOWED.to_owned()),
            words => (PathBuf::read(words))
                .map(Self::File)
                .map_err(|_| ALLOWED.to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        match self {
            Self::None => Some(Value::String("none".to_owned())),
            Self::Auto => Some(Value::String("auto".to_owned())),
            Self::File(path) => path.show(),
        }
    }
}

const ALLOWED: &str = "a path, auto or none";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(word: &str) -> Result<JournalPlace, String> {
        JournalPlace::read(&[word.to_owned()])
    }

    #[test]
    fn a_place_is_a_path_auto_or_none() {
        assert_eq!(read("none"), Ok(JournalPlace::None));
        assert_eq!(read("auto"), Ok(JournalPlace::Auto));
        assert_eq!(read("./none"), Ok(JournalPlace::File("./none".into())));
        for wrong in ["", "etcd://a:2379", "a\0b"] {
            assert_eq!(read(wrong), Err(ALLOWED.to_owned()), "{wrong:?}");
        }
    }
}

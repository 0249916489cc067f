//! Parsing and printing of setting values.
//!
//! All sources (file, environment, flags) pass words, so a value has the same meaning in each, and an invalid one gives the
//! same message.

use std::{
    net::SocketAddr,
    num::{NonZeroU16, NonZeroU32},
    path::{Path, PathBuf},
    time::Duration,
};

use toml::Value;

use super::duration;

/// How many words a setting takes on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// No word: the flag stands for `true`.
    Switch,
    /// One word. The last one given wins.
    One,
    /// Two words after one flag.
    Pair,
    /// One word, and the flag may be repeated.
    Many,
}

/// A type of settings.
pub trait Setting: Sized {
    /// The number of words.
    const SHAPE: Shape = Shape::One;

    /// The allowed words, if they are few. Shells complete them.
    const WORDS: &'static [&'static str] = &[];

    /// Parses the words of a source.
    ///
    /// # Errors
    /// What is allowed, as the end of a sentence that starts with "expected".
    fn read(words: &[String]) -> Result<Self, String>;

    /// The value in a file. `None` if the setting is not set.
    fn show(&self) -> Option<Value>;
}

/// The word of a setting that takes one.
fn single(words: &[String]) -> Option<&str> {
    match words {
        [word] => Some(word.trim()),
        _ => None,
    }
}

fn refuse<T>(allowed: &str) -> Result<T, String> {
    Err(allowed.to_owned())
}

impl<T: Setting> Setting for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    const WORDS: &'static [&'static str] = T::WORDS;

    fn read(words: &[String]) -> Result<Self, String> {
        T::read(words).map(Some)
    }

    fn show(&self) -> Option<Value> {
        self.as_ref().and_then(T::show)
    }
}

impl Setting for bool {
    const SHAPE: Shape = Shape::Switch;

    fn read(words: &[String]) -> Result<Self, String> {
        match single(words) {
            Some("true" | "yes" | "on" | "1") => Ok(true),
            Some("false" | "no" | "off" | "0") => Ok(false),
            _ => refuse("true or false"),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::Boolean(*self))
    }
}

impl Setting for u32 {
    fn read(words: &[String]) -> Result<Self, String> {
        single(words)
            .and_then(whole_number)
            .ok_or_else(|| format!("a whole number from 0 to {}", Self::MAX))
    }

    fn show(&self) -> Option<Value> {
        Some(Value::Integer(i64::from(*self)))
    }
}

impl Setting for NonZeroU32 {
    fn read(words: &[String]) -> Result<Self, String> {
        single(words)
            .and_then(whole_number)
            .and_then(Self::new)
            .ok_or_else(|| format!("a whole number from 1 to {}", Self::MAX))
    }

    fn show(&self) -> Option<Value> {
        self.get().show()
    }
}

impl Setting for NonZeroU16 {
    fn read(words: &[String]) -> Result<Self, String> {
        single(words)
            .and_then(whole_number)
            .and_then(|number| Self::new(u16::try_from(number).ok()?))
            .ok_or_else(|| format!("a whole number from 1 to {}", Self::MAX))
    }

    fn show(&self) -> Option<Value> {
        Some(Value::Integer(i64::from(self.get())))
    }
}

impl Setting for SocketAddr {
    fn read(words: &[String]) -> Result<Self, String> {
        single(words)
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| "ADDRESS:PORT such as 0.0.0.0:7070 or [::]:7070".to_owned())
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.to_string()))
    }
}

/// Parses digits only: signs and blanks are mistakes.
pub(super) fn whole_number(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

impl Setting for Duration {
    fn read(words: &[String]) -> Result<Self, String> {
        single(words)
            .and_then(duration::parse)
            .ok_or_else(|| duration::ALLOWED.to_owned())
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(duration::show(*self)))
    }
}

/// A duration longer than zero, for timeouts and intervals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timeout(Duration);

impl Timeout {
    /// From whole seconds.
    pub(super) const fn seconds(seconds: NonZeroU32) -> Self {
        Self(Duration::from_secs(seconds.get() as u64))
    }

    /// The duration.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }
}

impl Setting for Timeout {
    fn read(words: &[String]) -> Result<Self, String> {
        single(words)
            .and_then(duration::parse)
            .filter(|duration| !duration.is_zero())
            .map(Self)
            .ok_or_else(|| format!("{}, longer than 0", duration::ALLOWED))
    }

    fn show(&self) -> Option<Value> {
        self.0.show()
    }
}

impl Setting for String {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] if !word.is_empty() => Ok(word.clone()),
            _ => refuse("some text"),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.clone()))
    }
}

impl Setting for PathBuf {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] if !word.is_empty() && !word.contains('\0') => Ok(Path::new(word).to_owned()),
            _ => refuse("a path"),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.display().to_string()))
    }
}

/// A list with one element per word.
impl<T: Setting> Setting for Vec<T> {
    const SHAPE: Shape = Shape::Many;

    fn read(words: &[String]) -> Result<Self, String> {
        words
            .iter()
            .map(|word| T::read(std::slice::from_ref(word)))
            .collect()
    }

    fn show(&self) -> Option<Value> {
        (!self.is_empty()).then(|| Value::Array(self.iter().filter_map(T::show).collect()))
    }
}

/// Implements [`Setting`] for an enum whose values are words.
macro_rules! word_setting {
    ($type:ty, $allowed:literal, $($word:literal => $value:path),+ $(,)?) => {
        impl Setting for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn read(words: &[String]) -> Result<Self, String> {
                let word = match words {
                    [word] => word.trim().to_ascii_lowercase(),
                    _ => String::new(),
                };
                match word.as_str() {
                    $($word => Ok($value),)+
                    _ => Err($allowed.to_owned()),
                }
            }

            fn show(&self) -> Option<toml::Value> {
                let word = match self {
                    $($value => $word,)+
                };
                Some(toml::Value::String(word.to_owned()))
            }
        }
    };
}
pub(super) use word_setting;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn numbers_are_digits_only() {
        assert_eq!(u32::read(&words(&["0"])), Ok(0));
        assert_eq!(
            NonZeroU32::read(&words(&[" 7 "])).map(NonZeroU32::get),
            Ok(7)
        );
        for wrong in [
            "",
            "+1",
            "-1",
            "1.0",
            "1e2",
            "0x10",
            "4294967296",
            "٣",
            "1 2",
        ] {
            assert!(u32::read(&words(&[wrong])).is_err(), "{wrong}");
            assert!(NonZeroU32::read(&words(&[wrong])).is_err(), "{wrong}");
        }
        assert!(NonZeroU32::read(&words(&["0"])).is_err());
        assert!(u32::read(&words(&["1", "2"])).is_err());
    }

    #[test]
    fn a_timeout_is_never_zero() {
        assert!(Timeout::read(&words(&["0s"])).is_err());
        assert!(Timeout::read(&words(&["0.00000000001s"])).is_err());
        assert_eq!(
            Timeout::read(&words(&["1ms"])).map(Timeout::get),
            Ok(Duration::from_millis(1))
        );
    }

    #[test]
    fn what_a_list_shows_is_what_it_reads() {
        let list: Vec<PathBuf> = Setting::read(&words(&["a", "b c"])).expect("two paths");
        assert_eq!(
            list.show().map(|value| value.to_string()).as_deref(),
            Some(r#"["a", "b c"]"#)
        );
        assert_eq!(Vec::<PathBuf>::new().show(), None);
    }
}

//! The types of settings that are neither number, duration nor path.

use std::{collections::BTreeMap, fmt, time::Duration};

use elasticrun_plugin_sdk::hosts::MAX_SLOTS;
use toml::Value;

use super::{
    duration,
    value::{Setting, Shape, whole_number, word_setting},
};

/// Slots of a host whose source tells none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotsPerHost {
    /// The count of GPUs that are found on the host, else 1.
    Auto,
    /// This many, from 1 to [`MAX_SLOTS`].
    Fixed(u32),
}

impl Setting for SlotsPerHost {
    fn read(words: &[String]) -> Result<Self, String> {
        let refusal = || format!("auto or a whole number from 1 to {MAX_SLOTS}");
        let [word] = words else {
            return Err(refusal());
        };
        match word.trim() {
            "auto" => Ok(Self::Auto),
            number => whole_number(number)
                .filter(|slots| (1..=MAX_SLOTS).contains(slots))
                .map(Self::Fixed)
                .ok_or_else(refusal),
        }
    }

    fn show(&self) -> Option<Value> {
        match self {
            Self::Auto => Some(Value::String("auto".to_owned())),
            Self::Fixed(slots) => slots.show(),
        }
    }
}

/// Whether a failed domain may come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlacklistPolicy {
    /// Out for good at the first failure, Horovod's default.
    Forever,
    /// Used again when its cooldown is over.
    Cooldown,
}

word_setting!(BlacklistPolicy, "forever or cooldown",
    "forever" => BlacklistPolicy::Forever,
    "cooldown" => BlacklistPolicy::Cooldown,
);

/// What a worker's failure takes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureDomain {
    /// Its host, with all other workers there.
    Host,
    /// Its slot only.
    Slot,
}

word_setting!(FailureDomain, "host or slot",
    "host" => FailureDomain::Host,
    "slot" => FailureDomain::Slot,
);

/// How agents come to their hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Launcher {
    /// A child process of the driver.
    Local,
    /// The system's ssh.
    Ssh,
    /// By themselves; they show the join token.
    Agent,
}

word_setting!(Launcher, "local, ssh or agent",
    "local" => Launcher::Local,
    "ssh" => Launcher::Ssh,
    "agent" => Launcher::Agent,
);

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Ssh => "ssh",
            Self::Agent => "agent",
        })
    }
}

/// What is logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Nothing but what ends the job.
    Error,
    /// What should not have happened, but was mended.
    Warn,
    /// What an operator acts on.
    Info,
    /// Each decision with its reason.
    Debug,
    /// Each message.
    Trace,
}

impl LogLevel {
    /// The name that a `tracing` filter takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl Setting for LogLevel {
    fn read(words: &[String]) -> Result<Self, String> {
        let word = match words {
            [word] => word.trim().to_ascii_lowercase(),
            _ => String::new(),
        };
        match word.as_str() {
            "error" | "fatal" => Ok(Self::Error),
            "warn" | "warning" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            "trace" => Ok(Self::Trace),
            _ => Err("error, warn, info, debug or trace".to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.name().to_owned()))
    }
}

/// How a line of the log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

word_setting!(LogFormat, "text or json",
    "text" => LogFormat::Text,
    "json" => LogFormat::Json,
);

/// The shortest and the longest cooldown of a blacklisted domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CooldownRange {
    lo: Duration,
    hi: Duration,
}

impl CooldownRange {
    /// From `lo` to `hi`; none if `lo` is the longer one.
    #[must_use]
    pub const fn new(lo: Duration, hi: Duration) -> Option<Self> {
        if lo.as_nanos() <= hi.as_nanos() {
            Some(Self { lo, hi })
        } else {
            None
        }
    }

    /// The first cooldown. May be zero.
    #[must_use]
    pub fn lo(self) -> Duration {
        self.lo
    }

    /// The longest cooldown, at least as long as the first.
    #[must_use]
    pub fn hi(self) -> Duration {
        self.hi
    }
}

impl Setting for CooldownRange {
    const SHAPE: Shape = Shape::Pair;

    fn read(words: &[String]) -> Result<Self, String> {
        let parts: Vec<_> = words
            .iter()
            .flat_map(|word| word.split_whitespace())
            .collect();
        let [lo, hi] = parts.as_slice() else {
            return Err("two durations, LO HI".to_owned());
        };
        match (duration::parse(lo), duration::parse(hi)) {
            (Some(lo), Some(hi)) => {
                Self::new(lo, hi).ok_or_else(|| "LO not longer than HI".to_owned())
            }
            _ => Err(format!("two durations, LO HI, each {}", duration::ALLOWED)),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::Array(vec![
            Value::String(duration::show(self.lo)),
            Value::String(duration::show(self.hi)),
        ]))
    }
}

/// A discovery plugin and its options: `NAME[:key=value,...]`. A comma inside a value is written `\,`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginSource {
    /// The plugin's name.
    pub name: String,
    /// Its options, as written.
    pub options: BTreeMap<String, String>,
}

impl Setting for PluginSource {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] => Self::parse(word.trim()),
            _ => Err(PLUGIN_FORM.to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.to_string()))
    }
}

const PLUGIN_FORM: &str =
    "NAME or NAME:key=value,key=value, where NAME has letters, digits, - and _";

impl PluginSource {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = text
            .split_once(':')
            .map_or((text, None), |(name, rest)| (name, Some(rest)));
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(word) {
            return Err(PLUGIN_FORM.to_owned());
        }
        let mut options = BTreeMap::new();
        for option in rest.map(split_at_commas).unwrap_or_default() {
            let Some((key, value)) = option.split_once('=').filter(|(key, _)| !key.is_empty())
            else {
                return Err(PLUGIN_FORM.to_owned());
            };
            if options.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(format!("each option once, {key} is there twice"));
            }
        }
        Ok(Self {
            name: name.to_owned(),
            options,
        })
    }
}

impl fmt::Display for PluginSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (place, (key, value)) in self.options.iter().enumerate() {
            let mark = if place == 0 { ':' } else { ',' };
            let value = value.replace('\\', r"\\").replace(',', r"\,");
            write!(f, "{mark}{key}={value}")?;
        }
        Ok(())
    }
}

fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = parts.len() - 1;
        match c {
            ',' => parts.push(String::new()),
            '\\' => parts[last].push(chars.next().unwrap_or('\\')),
            other => parts[last].push(other),
        }
    }
    parts
}

/// Names of network interfaces, in order of preference; several in one word are separated by commas.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Interfaces(pub Vec<String>);

impl Setting for Interfaces {
    const SHAPE: Shape = Shape::Many;

    fn read(words: &[String]) -> Result<Self, String> {
        let names: Vec<_> = words
            .iter()
            .flat_map(|word| word.split(','))
            .map(|name| name.trim().to_owned())
            .collect();
        let sound = |name: &String| {
            (1..=15).contains(&name.len())
                && !name.contains(|c: char| c.is_whitespace() || c == '/')
        };
        if !names.is_empty() && names.iter().all(sound) {
            Ok(Self(names))
        } else {
            Err("names of network interfaces such as eth0, at most 15 bytes each".to_owned())
        }
    }

    fn show(&self) -> Option<Value> {
        self.0.show()
    }
}

/// An option that ssh takes behind `-o`: `NAME=VALUE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SshOption(String);

impl SshOption {
    /// As it stands behind `-o`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for SshOption {
    fn read(words: &[String]) -> Result<Self, String> {
        let sound = |text: &&String| {
            text.split_once(['=', ' ']).is_some_and(|(name, value)| {
                !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
                    && !value.is_empty()
            }) && !text.contains(char::is_control)
        };
        match words {
            [word] => Some(word).filter(sound).map(|text| Self(text.clone())),
            _ => None,
        }
        .ok_or_else(|| "NAME=VALUE as in ssh_config(5)".to_owned())
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Setting>(words: &[&str]) -> Result<T, String> {
        T::read(
            &words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn slots_are_auto_or_a_number() {
        assert_eq!(read(&["auto"]), Ok(SlotsPerHost::Auto));
        assert_eq!(read(&["1024"]), Ok(SlotsPerHost::Fixed(1024)));
        for wrong in ["0", "1025", "", "many", "-1"] {
            assert!(read::<SlotsPerHost>(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn horovods_level_names_are_understood() {
        for (word, level) in [
            ("FATAL", LogLevel::Error),
            ("WARNING", LogLevel::Warn),
            ("info", LogLevel::Info),
            ("TRACE", LogLevel::Trace),
        ] {
            assert_eq!(read(&[word]), Ok(level));
        }
    }

    #[test]
    fn a_cooldown_range_is_ordered() {
        let range: CooldownRange = read(&["0", "300"]).expect("a range");
        assert_eq!(
            (range.lo(), range.hi()),
            (Duration::ZERO, Duration::from_mins(5))
        );
        assert_eq!(read::<CooldownRange>(&["1s 4s"]), read(&["1s", "4s"]));
        for wrong in [
            &["1s"][..],
            &["2s", "1s"],
            &["1s", "2s", "3s"],
            &["a", "1s"],
            &[],
        ] {
            assert!(read::<CooldownRange>(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_plugin_with_options() {
        let source: PluginSource = read(&[r"asg:name=gpus,tags=a=b\,c,empty="]).expect("a source");
        assert_eq!(source.name, "asg");
        let options: Vec<_> = source
            .options
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            options,
            [("empty", ""), ("name", "gpus"), ("tags", "a=b,c")]
        );
        assert_eq!(read(&[&source.to_string()]), Ok(source));
        for wrong in [
            "",
            ":",
            "a b",
            "a:",
            "a:x",
            "a:=1",
            "a:x=1,",
            "a:x=1,x=2",
            "../lib",
        ] {
            assert!(read::<PluginSource>(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn interfaces_may_share_a_word() {
        assert_eq!(
            read::<Interfaces>(&["eth0, ib0", "lo"]),
            Ok(Interfaces(vec!["eth0".into(), "ib0".into(), "lo".into()]))
        );
        for wrong in [&[""][..], &["eth0,"], &["a/b"], &["sixteenletters00"], &[]] {
            assert!(read::<Interfaces>(wrong).is_err(), "{wrong:?}");
        }
    }
}

//! Settings that are one of a few words.

use std::{fmt, num::NonZeroU32};

use elasticrun_plugin_sdk::hosts::MAX_SLOTS;
use toml::Value;

use super::value::{Setting, whole_number, word_setting};

/// Slots per host when discovery reports none.
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

/// What a failure or a change of the members does to the workers' processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartMode {
    /// Workers go on in their processes; they have the SDK.
    InProcess,
    /// All processes end and are started anew, as torchrun does.
    Process,
    /// As `Process` until a worker has attached, as `InProcess` from then on.
    Auto,
}

word_setting!(RestartMode, "in-process, process or auto",
    "in-process" => RestartMode::InProcess,
    "process" => RestartMode::Process,
    "auto" => RestartMode::Auto,
);

/// The number of workers that hold one whole state together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaGroupSize {
    /// This many. Of 1 each worker holds the whole state; otherwise each holds a shard.
    Fixed(NonZeroU32),
    /// All workers of a round: each holds a shard.
    All,
}

impl ReplicaGroupSize {
    /// Each worker holds the whole state.
    pub const ONE: Self = Self::Fixed(NonZeroU32::MIN);
}

impl Setting for ReplicaGroupSize {
    const WORDS: &'static [&'static str] = &["1", "all"];

    fn read(words: &[String]) -> Result<Self, String> {
        let all = matches!(words, [word] if word.trim().eq_ignore_ascii_case("all"));
        match all {
            true => Ok(Self::All),
            false => (NonZeroU32::read(words).map(Self::Fixed))
                .map_err(|allowed| format!("all or {allowed}")),
        }
    }

    fn show(&self) -> Option<Value> {
        match self {
            Self::All => Some(Value::String("all".to_owned())),
            Self::Fixed(size) => size.show(),
        }
    }
}

/// Whose environment workers on other hosts have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerEnv {
    /// That of their host, in which the variables that configure training are those of the driver.
    Driver,
    /// That of their host.
    Host,
}

word_setting!(WorkerEnv, "driver or host",
    "driver" => WorkerEnv::Driver,
    "host" => WorkerEnv::Host,
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

/// What workers encrypt between hosts. Their messages are authenticated in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encryption {
    /// Nothing.
    None,
    /// The messages of collectives.
    Data,
}

word_setting!(Encryption, "none or data",
    "none" => Encryption::None,
    "data" => Encryption::Data,
);

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
    const WORDS: &'static [&'static str] = &["error", "warn", "info", "debug", "trace"];

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
}

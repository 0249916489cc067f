//! Settings of the network: interfaces, and options for ssh.

use elasticrun_agent::LocalInterfaces;
use toml::Value;

use super::{
    error::Error,
    layer::Origin,
    value::{Setting, Shape},
};

/// Names of network interfaces, in order of preference. Commas separate several names in one word.
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

/// Checks that this machine has one of the interfaces that `--network-interface` names, with an address. If the system does
/// not list them, the agent finds out.
///
/// # Errors
/// [`Error::Value`] with the interfaces that this machine has.
pub fn check_interfaces(origin: &Origin, given: &Interfaces) -> Result<(), Error> {
    match LocalInterfaces::list() {
        Ok(here) if !given.0.is_empty() && !here.has_any(&given.0) => Err(Error::Value {
            written: origin.written("network-interface", &[given.0.join(",")]),
            allowed: format!(
                "an interface of this machine with an address: {}",
                here.usable()
            ),
        }),
        _ => Ok(()),
    }
}

/// An option of ssh for `-o`: `NAME=VALUE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SshOption(String);

impl SshOption {
    /// The value for `-o`.
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
    fn interfaces_may_share_a_word() {
        assert_eq!(
            read::<Interfaces>(&["eth0, ib0", "lo"]),
            Ok(Interfaces(vec!["eth0".into(), "ib0".into(), "lo".into()]))
        );
        for wrong in [&[""][..], &["eth0,"], &["a/b"], &["sixteenletters00"], &[]] {
            assert!(read::<Interfaces>(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_option_for_ssh_has_a_name_and_a_value() {
        for right in ["Port=22", "ProxyCommand=ssh -W %h:%p j", "ConnectTimeout 5"] {
            let option = read::<SshOption>(&[right]).expect(right);
            assert_eq!(option.as_str(), right);
        }
        for wrong in ["", "Port", "=22", "Port=", "-oPort=22", "Port=22\nHost=x"] {
            assert!(read::<SshOption>(&[wrong]).is_err(), "{wrong}");
        }
    }
}

//! Where the journal of a job is (`--journal`).

use std::{fmt, path::PathBuf, time::Duration};

use elasticrun_etcd::Address;
use toml::Value;

use super::value::Setting;

/// The shortest lease of a driver in etcd. etcd 3.4 grants no shorter one with its default settings.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_secs(2);

/// The longest lease of a driver in etcd: so long a run may be without a driver.
const LONGEST_LEASE: Duration = Duration::from_secs(5);

/// The lease of a driver in etcd, whose agents wait for `orphan` after its death. It is a third of that time, in whole seconds
/// as etcd counts, so that the next driver is there before.
pub(crate) fn lease(orphan: Duration) -> Duration {
    let third = Duration::from_secs(orphan.as_secs() / 3);
    third.clamp(SHORTEST_LEASE, LONGEST_LEASE)
}

/// A place for the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalPlace {
    /// The job has no journal.
    None,
    /// In the state directory of the user.
    Auto,
    /// In this file.
    File(PathBuf),
    /// In this cluster of etcd.
    Etcd(EtcdPlace),
}

/// A place for journals in a cluster of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdPlace {
    /// As the user has written it.
    text: String,
    /// What it means.
    pub(crate) address: Address,
}

impl EtcdPlace {
    /// Reads an address.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let address = Address::parse(text).map_err(|_| ALLOWED.to_owned())?;
        let text = text.to_owned();
        Ok(Self { text, address })
    }
}

impl fmt::Display for EtcdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Setting for JournalPlace {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] if word == "none" => Ok(Self::None),
            [word] if word == "auto" => Ok(Self::Auto),
            // The address of a service, and no path.
            [word] if word.contains("://") => EtcdPlace::parse(word).map(Self::Etcd),
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
            Self::Etcd(place) => Some(Value::String(place.to_string())),
        }
    }
}

const ALLOWED: &str = "a path, etcd://HOST:PORT[,HOST:PORT...][/PREFIX], auto or none";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(word: &str) -> Result<JournalPlace, String> {
        JournalPlace::read(&[word.to_owned()])
    }

    #[test]
    fn a_lease_ends_before_agents_give_up() {
        for (orphan, expected) in [(4, 2), (5, 2), (10, 3), (16, 5), (600, 5)] {
            let orphan = Duration::from_secs(orphan);
            assert_eq!(lease(orphan), Duration::from_secs(expected), "{orphan:?}");
        }
    }

    #[test]
    fn a_place_is_a_path_an_address_auto_or_none() {
        assert_eq!(read("none"), Ok(JournalPlace::None));
        assert_eq!(read("auto"), Ok(JournalPlace::Auto));
        assert_eq!(read("./none"), Ok(JournalPlace::File("./none".into())));
        let address = "etcd://a:1,[::1]/x";
        let Ok(JournalPlace::Etcd(place)) = read(address) else {
            panic!("{address} is an address");
        };
        assert_eq!(place.to_string(), address);
        assert_eq!(place.address.endpoints, ["a:1", "[::1]:2379"]);
        for wrong in ["", "etcd://", "etcd://a:0", "redis://a:1", "a\0b"] {
            assert_eq!(read(wrong), Err(ALLOWED.to_owned()), "{wrong:?}");
        }
    }
}

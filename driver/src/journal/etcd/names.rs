//! The keys of a run in etcd.

use elasticrun_etcd::{Address, Keys};

use super::super::{epoch, outcome};

/// The prefix of an address that names none.
const PREFIX: &str = "/elasticrun";

/// The names of all keys of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// What all keys of the run begin with, without a slash at its end.
    run: String,
}

impl Names {
    pub(super) fn new(address: &Address, run: &str) -> Self {
        Self {
            run: format!("{}/{run}", prefix(address)),
        }
    }

    /// The key where the nodes of the job with this name meet.
    pub(super) fn of_nodes(address: &Address, id: &str) -> Vec<u8> {
        format!("{}/nodes/{id}", prefix(address)).into()
    }

    /// The prefix of the keys of the leadership.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// All keys of the run.
    pub(super) fn all(&self) -> Keys {
        Keys::Prefix(format!("{}/", self.run).into())
    }

    /// All entries but the outcome.
    pub(super) fn state(&self) -> Keys {
        Keys::Prefix(self.state_prefix().into())
    }

    pub(super) fn leader(&self) -> Vec<u8> {
        format!("{}/leader", self.run).into()
    }

    pub(super) fn epoch(&self) -> Vec<u8> {
        format!("{}/epoch", self.run).into()
    }

    pub(super) fn meta(&self) -> Vec<u8> {
        format!("{}/meta", self.run).into()
    }

    /// The key of a standby driver with this random number.
    pub(super) fn standby(&self, nonce: u64) -> Vec<u8> {
        format!("{}{nonce:016x}", self.standby_prefix()).into()
    }

    /// All standby drivers.
    pub(super) fn standbys(&self) -> Keys {
        Keys::Prefix(self.standby_prefix().into())
    }

    /// The entry that names the driver which writes.
    pub(super) fn driver(&self) -> Vec<u8> {
        self.entry(epoch::KEY)
    }

    /// The key of an entry.
    pub(super) fn entry(&self, entry: &str) -> Vec<u8> {
        match entry {
            outcome::KEY => format!("{}/{}", self.run, outcome::KEY),
            entry => format!("{}{entry}", self.state_prefix()),
        }
        .into()
    }

    /// The entry of a key. `None` for another key of the run.
    pub(super) fn entry_of<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let key = std::str::from_utf8(key).ok()?;
        match key.strip_prefix(self.state_prefix().as_str()) {
            Some(entry) => Some(entry),
            None => key
                .strip_prefix(self.run.as_str())
                .and_then(|rest| rest.strip_prefix('/'))
                .filter(|rest| *rest == outcome::KEY),
        }
    }

    fn standby_prefix(&self) -> String {
        format!("{}/standby/", self.run)
    }

    fn state_prefix(&self) -> String {
        format!("{}/state/", self.run)
    }
}

fn prefix(address: &Address) -> &str {
    match address.prefix.as_str() {
        "" => PREFIX,
        prefix => prefix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_one_key() {
        let address = Address::parse("etcd://a/x").expect("an address");
        let names = Names::new(&address, "1a2b");
        assert_eq!(names.leader(), b"/x/1a2b/leader");
        for (entry, key) in [
            ("host/a/0", "/x/1a2b/state/host/a/0"),
            ("final", "/x/1a2b/final"),
            ("epoch", "/x/1a2b/state/epoch"),
        ] {
            assert_eq!(names.entry(entry), key.as_bytes());
            assert_eq!(names.entry_of(key.as_bytes()), Some(entry));
        }
        assert_eq!(names.standby(10), b"/x/1a2b/standby/000000000000000a");
        for other in [
            "/x/1a2b/standby/a",
            "/x/1a2b/leader",
            "/x/1a2b/epoch",
            "/x/1a2b/meta",
            "/y",
        ] {
            assert_eq!(names.entry_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn an_address_without_a_prefix_has_one() {
        let address = Address::parse("etcd://a").expect("an address");
        assert_eq!(Names::new(&address, "r").run(), "/elasticrun/r");
    }
}
